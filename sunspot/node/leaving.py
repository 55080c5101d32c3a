"""How a node leaves its cluster: a worker is drained, on the head Ray's unit is stopped."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol

from sunspot.node import gcs

# Short: one call must not use up a notice of 30 s.
RPC_TIMEOUT_S = 2.0

log = logging.getLogger(__name__)


class Node(Protocol):
    """This machine's Ray node. The caller repeats a method that raises, so calls are idempotent."""

    def drain(self, until: float, message: str) -> None:
        """Stops new work; `until` (seconds since the epoch) is when the node will be stopped."""
        ...

    def stop(self) -> None:
        """Begins to stop the node, whatever runs on it."""
        ...

    def has_left(self) -> bool:
        """True once the node is no longer a member of the cluster."""
        ...

    def forget(self) -> None:
        """Drops the connections that are kept between calls. Never raises."""
        ...


class Marks:
    """Empty files in a folder, with which the container and its host signal each other.

    `leaving`   this machine is about to go: Ray's unit does not start
    `stop`      stop Ray's unit; the host then renames the file to `stopped`
    `return`    the event passed and the machine is still there: start Ray's unit again

    On Azure the folder is in /run, which a reboot empties. Without a folder, marks do nothing.
    """

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder

    def set(self, name: str) -> None:
        """Makes a mark."""
        if self._folder:
            (self._folder / name).touch()

    def clear(self, name: str) -> None:
        """Removes a mark, if it is there."""
        if self._folder:
            (self._folder / name).unlink(missing_ok=True)

    def has(self, name: str) -> bool:
        """Whether a mark is there."""
        return self._folder is not None and (self._folder / name).exists()


class Worker:
    """The worker `name` (Ray's node name) of the cluster whose GCS is at `address`.

    Its raylet exits by itself once it is draining and nothing runs on it.
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
        # Ray ends a process whose client cannot reach its GCS for a minute.
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
    """The head, where the GCS, the dashboard and the jobs' drivers run.

    It is not drained, since these cannot move to another node. Ray's unit is stopped in time, so
    that the GCS's state on disk is consistent.
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
    """Makes a call; returns False if it raised, which is logged, for the next turn to repeat."""
    try:
        call()
    except Exception as error:  # Ray's errors have no common class
        log.warning("could not %s: %s", what, error)
        return False
    return True
