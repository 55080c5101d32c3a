"""The record of what happened to a cluster's nodes: a file of JSON lines.

Several processes write it: the autoscaler, launchers, commands, the watcher of an eviction. Each
appends a whole line with one write, which Linux does not mix with another's (write(2), O_APPEND).
A head replaces it by a shorter one when it has grown large (shortening.py).
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import math
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from sunspot.node.files import is_at, write_private

Kind = Literal[
    "launched",
    "refused",
    "joined",
    "drained",
    "evicted",
    "lost",
    "scaled",
    "replaced",
    "gave-up",
    "paused",
    "resumed",
    "idle",
    "changed",
    "earlier",
]

# How a node can end; one that was evicted may have been drained as well.
ENDS: frozenset[Kind] = frozenset({"drained", "evicted", "lost", "gave-up"})

# How long a writer waits for others. To shorten a record takes tenths of a second; whoever keeps it
# locked for longer must not stop the autoscaler, which writes at its ticks.
LOCK_S, LOCK_PAUSE_S = 2.0, 0.01
# The end of the year 9998: Python has no date after the next one.
LATEST_S = 253_370_764_800.0


@dataclass(frozen=True, kw_only=True)
class Event:
    """What happened to a node, or to a group.

    Attributes:
        kind: `launched` is requested, `refused` not to be had now, `joined` a member of the
            cluster; a `drained` node left when the work on it had ended, or after the deadline of
            its drain, a `lost` one did not; `replaced` by the node that the reason names; the
            cluster `gave-up` on one that did not join. A group is
            `paused` while nothing is launched for it, until it is `resumed`. A cluster was `idle`,
            or its settings were `changed`. Of `earlier` events of a group only sums are left.
        group: the group's name, or its node type; "" for what is about the whole cluster.
        node: the node's name; "" for what is about a group, or the cluster.
        reason: why, for people.
        time: seconds since the epoch.
        earlier: how many events of each kind there were, and as "hours" how long their machines
            existed; only of `earlier`.
    """

    kind: Kind
    group: str
    node: str = ""
    reason: str = ""
    time: float = field(default_factory=time.time)
    earlier: Mapping[str, float] = field(default_factory=dict, hash=False)

    def plain(self) -> dict[str, Any]:
        """It as JSON has it."""
        return {name: value for name, value in asdict(self).items() if name != "earlier" or value}


@dataclass(frozen=True)
class EventRecord:
    """The events of one cluster, in the file `path`, which only its owner can read."""

    path: Path

    def add(self, event: Event) -> None:
        """Appends an event; waits for at most LOCK_S.

        A full disk, a record that others keep locked, or a cluster that is being removed, is not an
        error.
        """
        with contextlib.suppress(OSError), self._held(fcntl.LOCK_SH) as file:
            os.write(file, _line(event).encode())

    def rewrite(self, change: Callable[[list[Event]], Iterable[Event]]) -> None:
        """Replaces all events by others; nothing that is added meanwhile is lost.

        Raises:
            OSError: the file cannot be read or written, or others keep it locked for LOCK_S; it is
                as it was.
        """
        with self._held(fcntl.LOCK_EX):
            write_private(self.path, "".join(map(_line, change(self.read()))))

    def size(self) -> int:
        """The bytes of the file; 0 where there is none."""
        return self.path.stat().st_size if self.path.exists() else 0

    def read(self) -> list[Event]:
        """All events, in the order in which they were written."""
        try:
            text = self.path.read_text(encoding="utf-8", errors="replace")
        except FileNotFoundError:
            return []
        return parse(text)

    @contextlib.contextmanager
    def _held(self, lock: int) -> Iterator[int]:
        """The file, open to append, and locked; not one that was replaced before the lock was."""
        deadline = time.monotonic() + LOCK_S
        while True:
            file = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            try:
                _lock(file, lock, deadline)
                if is_at(file, self.path):
                    yield file
                    return
            finally:
                os.close(file)

    def kinds(self, node: str) -> set[Kind]:
        """What is known of a node."""
        return {event.kind for event in self.read() if event.node == node}


def _lock(file: int, lock: int, deadline: float) -> None:
    """Locks a file; raises BlockingIOError where others keep it locked until the deadline."""
    while True:
        try:
            fcntl.flock(file, lock | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise
        time.sleep(LOCK_PAUSE_S)


def _line(event: Event) -> str:
    return f"{json.dumps(event.plain())}\n"


def parse(text: str) -> list[Event]:
    """The events of a file's text; what cannot be read is left out."""
    return list(_events(text))


def _events(text: str) -> Iterator[Event]:
    for line in text.splitlines():
        # On a full disk half a line may have been written, with another one after it; and a job can
        # write anything.
        with contextlib.suppress(ValueError, TypeError, OverflowError, RecursionError):
            yield _checked(Event(**json.loads(line)))


def _checked(event: Event) -> Event:
    """The event; raises a TypeError or a ValueError where a field is not of its kind."""
    numbers = [event.time, *event.earlier.values()] if isinstance(event.earlier, dict) else []
    texts = [event.kind, event.group, event.node, event.reason, *event.earlier]
    "".join(texts).encode()  # a TypeError for what is not a text, a ValueError for half a character
    if not numbers or not all(map(math.isfinite, numbers)) or not 0 <= event.time < LATEST_S:
        raise ValueError(f"not an event: {event}")
    return event
