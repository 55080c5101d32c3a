"""The record of what happened to a cluster's nodes: a file of JSON lines that only grows.

Several processes write it: the autoscaler, launchers, commands, the watcher of an eviction. Each
appends a whole line with one write, which Linux does not mix with another's (write(2), O_APPEND).
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Literal

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
]

# How a node can end; one that was evicted may have been drained as well.
ENDS: frozenset[Kind] = frozenset({"drained", "evicted", "lost", "gave-up"})


@dataclass(frozen=True, kw_only=True)
class Event:
    """What happened to a node, or to a group.

    Attributes:
        kind: `launched` is requested, `refused` not to be had now, `joined` a member of the
            cluster; a `drained` node left in order, a `lost` one did not; `replaced` by the node
            that the reason names; the cluster `gave-up` on one that did not join. A group is
            `paused` while nothing is launched for it, until it is `resumed`. A cluster was `idle`,
            or its settings were `changed`.
        group: the group's name, or its node type; "" for what is about the whole cluster.
        node: the node's name; "" for what is about a group, or the cluster.
        reason: why, for people.
        time: seconds since the epoch.
    """

    kind: Kind
    group: str
    node: str = ""
    reason: str = ""
    time: float = field(default_factory=time.time)


@dataclass(frozen=True)
class EventRecord:
    """The events of one cluster, in the file `path`, which only its owner can read."""

    path: Path

    def add(self, event: Event) -> None:
        """Appends an event. A full disk, or a cluster that is being removed, is not an error."""
        line = f"{json.dumps(asdict(event))}\n".encode()
        with contextlib.suppress(OSError):
            file = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            try:
                os.write(file, line)
            finally:
                os.close(file)

    def read(self) -> list[Event]:
        """All events, in the order in which they were written."""
        try:
            text = self.path.read_text(encoding="utf-8", errors="replace")
        except FileNotFoundError:
            return []
        return parse(text)

    def kinds(self, node: str) -> set[Kind]:
        """What is known of a node."""
        return {event.kind for event in self.read() if event.node == node}


def parse(text: str) -> list[Event]:
    """The events of a file's text; what cannot be read is left out."""
    return list(_events(text))


def _events(text: str) -> Iterator[Event]:
    for line in text.splitlines():
        # On a full disk half a line may have been written, with another one after it.
        with contextlib.suppress(ValueError, TypeError):
            yield Event(**json.loads(line))
