"""How a node leaves its cluster in order: a worker by a drain, the head by a stop of Ray's unit."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol

from sunspot.node import gcs

# Short: an event of 30 s must not be waited away on one call.
RPC_TIMEOUT_S = 2.0

log = logging.getLogger(__name__)


class Node(Protocol):
    """This machine's Ray node. Every method may raise and is then called again."""

    def drain(self, until: float, message: str) -> None:
        """Lets no new work in; `until` (seconds since the epoch) is when it will be stopped."""
        ...

    def stop(self) -> None:
        """Begins to stop it, whatever runs on it."""
        ...

    def has_left(self) -> bool:
        """True once it is no member of the cluster."""
        ...

    def forget(self) -> None:
        """Lets go what it keeps open between calls. Never raises."""
        ...


class Marks:
    """Empty files in a folder, by which the container and the machine around it tell each other.

    `leaving`   this machine is about to go: Ray's unit does not start
    `stop`      stop Ray's unit; the machine renames it to `stopped` when that is done
    `return`    the event passed and the machine is still there: start Ray's unit again

    On Azure they lie in /run, which a reboot empties. None: nobody is to be told.
    """

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder

    def set(self, name: str) -> None:
        if self._folder:
            (self._folder / name).touch()

    def clear(self, name: str) -> None:
        if self._folder:
            (self._folder / name).unlink(missing_ok=True)

    def has(self, name: str) -> bool:
        return self._folder is not None and (self._folder / name).exists()


class Worker:
    """A worker of the cluster whose GCS is at `address`, by Ray's node name.

    The raylet ends by itself once it drains and nothing runs on it.
    """

    def __init__(self, address: str, name: str) -> None:
        self._address = address
        self._name = name
        self._client: Any = None

    def drain(self, until: float, message: str) -> None:
        with self._connected() as client:
            node_id = gcs.alive_nodes(client, RPC_TIMEOUT_S).get(self._name)
            if node_id is not None:
                deadline_ms = int(max(until, time.time()) * 1000)
                gcs.drain_node(client, node_id, message, deadline_ms, RPC_TIMEOUT_S)

    def stop(self) -> None:
        with self._connected() as client:
            raylet = gcs.raylets(client, RPC_TIMEOUT_S).get(self._name)
        if raylet is not None:
            gcs.stop_raylet(raylet, RPC_TIMEOUT_S)

    def has_left(self) -> bool:
        with self._connected() as client:
            return self._name not in gcs.alive_nodes(client, RPC_TIMEOUT_S)

    def forget(self) -> None:
        # Ray ends a process that keeps a client whose GCS is away for a minute.
        self._client = None

    @contextlib.contextmanager
    def _connected(self) -> Iterator[Any]:
        try:
            self._client = self._client or gcs.connect(self._address)
            yield self._client
        except Exception:
            self.forget()
            raise


class Head:
    """The head, where the GCS, the dashboard and the jobs' drivers live.

    It is not drained, for there is nowhere that these could go. Ray's unit is stopped in time, so
    that what the GCS keeps on disk is whole.
    """

    def __init__(self, marks: Marks) -> None:
        self._marks = marks

    def drain(self, until: float, message: str) -> None:
        log.info("%s: Ray on the head is stopped in %.0f s", message, until - time.time())

    def stop(self) -> None:
        self._marks.set("stop")

    def has_left(self) -> bool:
        return self._marks.has("stopped")

    def forget(self) -> None:
        pass


def attempt(what: str, call: Callable[[], object]) -> bool:
    """False where the call raised: that is logged, for the next turn to try again."""
    try:
        call()
    except Exception as error:  # Ray's errors have no common class
        log.warning("could not %s: %s", what, error)
        return False
    return True
