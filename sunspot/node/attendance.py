"""Records the coming and going of the nodes that no autoscaler scales: the head, fixed groups.

What the autoscaler scales is recorded where it is launched (joins.py). Of the others the head knows
only that they are members of the cluster, and for the head itself not even when it was off.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Set
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from sunspot.node import ledger
from sunspot.node.collector import GROUP_LABEL, MARKET_LABEL
from sunspot.node.events import Event, EventRecord, Kind
from sunspot.node.joins import DRAINED, EVICTED
from sunspot.node.shortening import shorten

PAUSE_S = 5.0
# How often it looks whether the record has grown too large.
SHORTEN_S = 3600.0

OFF_S = 300.0
"""A head that was away for longer was off, and not only restarted."""

log = logging.getLogger(__name__)


class Members(Protocol):
    """What the cluster's GCS knows. The methods may raise, for the next turn to ask again."""

    def labels(self) -> dict[str, dict[str, str]]:
        """The labels of each member, by the members' names."""
        ...

    def evicted(self, machine_id: str) -> bool:
        """Whether a machine got the notice of its eviction."""
        ...

    def drained(self, machine_id: str) -> bool:
        """Whether a node that is a member no more was drained: see `GcsMembers.drained`."""
        ...


@dataclass
class Attendance:
    """Watches the members of a cluster.

    Attributes:
        head: the head's name.
        members: the members.
        events: the record of what happened.
        scaled: gives the node types that are recorded elsewhere.
        beat: a file whose age says since when the head is away.
        clock: seconds since the epoch.
        markets: the market of each node type of which there has been a member.
    """

    head: str
    members: Members
    events: EventRecord
    scaled: Callable[[], Set[str]]
    beat: Path
    clock: Callable[[], float] = time.time
    markets: dict[str, str] = field(default_factory=dict, init=False)
    _here: dict[str, str] | None = field(default=None, init=False)
    _shortened: float = field(default=0.0, init=False)

    def run(self) -> None:
        """Watches for ever."""
        pause = threading.Event()
        while True:
            try:
                self.turn()
            except Exception as error:  # Ray's errors have no common class; the next turn asks
                log.warning("the members of the cluster are unknown: %s", error)
            pause.wait(PAUSE_S)

    def turn(self) -> None:
        """Looks once, and writes what has changed."""
        labels = self.members.labels()
        found = {name: of.get(GROUP_LABEL, "") for name, of in labels.items()}
        self.markets |= {
            of.get(GROUP_LABEL, ""): of.get(MARKET_LABEL, "") for of in labels.values()
        }
        before = self._known() if self._here is None else self._here
        scaled = self.scaled()
        here = {name: group for name, group in found.items() if group not in scaled}
        for name, group in before.items():
            if name not in found and group not in scaled:
                self._tell_end(name, group)
        for name in here.keys() - before.keys():
            self._tell("joined", name, here[name], "")
        self._here = here
        self.beat.touch()
        self._shorten()

    def _shorten(self) -> None:
        if self.clock() < self._shortened + SHORTEN_S:
            return
        self._shortened = self.clock()
        try:
            shorten(self.events, self.clock())
        # A full disk, or a record that somebody else has written into; it grows on.
        except (OSError, LookupError, TypeError, ValueError) as error:
            log.warning("the record is not shortened: %s", error)

    def _known(self) -> dict[str, str]:
        """The members that are there by the record, at the first turn; ends a head that was off."""
        lives = ledger.lives(self.events.read())
        known = {life.node: life.group for life in lives if life.end is None}
        try:
            since = self.beat.stat().st_mtime
        except FileNotFoundError:
            return known
        if self.head in known and self.clock() - since > OFF_S:
            group = known.pop(self.head)
            self._tell("drained", self.head, group, "the head was off", since)
        return known

    def _tell_end(self, name: str, group: str) -> None:
        if self.members.evicted(name):
            self._tell("evicted", name, group, EVICTED)
        elif self.members.drained(name):
            self._tell("drained", name, group, DRAINED)
        else:
            self._tell("lost", name, group, "it is not a member any more")

    def _tell(
        self, kind: Kind, name: str, group: str, reason: str, when: float | None = None
    ) -> None:
        at = self.clock() if when is None else when
        self.events.add(Event(kind=kind, group=group, node=name, reason=reason, time=at))
