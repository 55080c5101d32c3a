"""Which machines have joined: one that does not is given back, and a group that never boots pauses.

Without that, a group whose image has a wrong tag would be paid for without end: Ray's autoscaler
ends a machine that does not join, and requests the next one.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

from sunspot.node.events import Kind
from sunspot.node.files import write_private
from sunspot.node.machines import Machine
from sunspot.node.teller import Teller

JOIN_TIMEOUT_S = 20 * 60.0
"""How long a machine may take from its launch until it is a member of the cluster."""

TRIES = 3
"""After so many machines of one kind in a row that did not join, their group is paused."""

END_AGAIN_S = 60.0
"""When a machine that was given back, and is still there, is given back again."""

LATE_S = 20.0
"""A machine that is listed for longer was not deleted: a newer change of its set ended that."""

EVICTED = "Azure took the machine back"
DRAINED = "it was drained before it left"

log = logging.getLogger(__name__)


class Members(Protocol):
    """What the cluster's GCS knows. The methods may raise, for the next tick to ask again."""

    def names(self) -> set[str]:
        """The machines that are members now."""
        ...

    def evicted(self, machine_id: str) -> bool:
        """Whether a machine got the notice of its eviction."""
        ...

    def drained(self, machine_id: str) -> bool:
        """Whether a node that is a member no more was drained: see `GcsMembers.drained`."""
        ...


@dataclass(frozen=True)
class Seen:
    """A machine that was listed; times are in seconds since the epoch.

    `ending` says that it leaves in order, `ended` since when; `given_up` is when one that did not
    join is to be ended.
    """

    kind: str
    since: float
    joined: bool = False
    ending: bool = False
    ended: float | None = None
    given_up: float | None = None


@dataclass(frozen=True)
class State:
    """What outlives the process.

    Attributes:
        machines: the machines that are listed, by their ids.
        failed: by kind, the reasons of the machines in a row that did not join.
        paused: by group, why it is paused.
        settings: the settings of the cluster when a group was paused; others lift it.
    """

    machines: Mapping[str, Seen] = field(default_factory=dict)
    failed: Mapping[str, Sequence[str]] = field(default_factory=dict)
    paused: Mapping[str, str] = field(default_factory=dict)
    settings: str = ""


class Joins:
    """Watches the machines of a cluster. Thread-safe.

    Args:
        file: where it keeps its state, so that a restart of the head changes nothing.
        members: the members of the cluster.
        why: says why a machine does not join, or "" if that is unknown; called before it is ended.
        teller: records what happened.
        timeout_s: how long a machine may take to join.
        clock: seconds since the epoch.
    """

    def __init__(
        self,
        file: Path,
        *,
        members: Members,
        why: Callable[[str], str],
        teller: Teller,
        timeout_s: float = JOIN_TIMEOUT_S,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._file = file
        self._members = members
        self._why = why
        self.teller = teller
        self._timeout_s = timeout_s
        self._clock = clock
        self._lock = threading.Lock()
        self._state = _read(file)
        # While the head was away, no machine could join.
        self._began = clock()

    def update(self, machines: Sequence[Machine], groups: Mapping[str, str]) -> list[str]:
        """Notes the machines, at each tick; returns those that are to be given back.

        Args:
            machines: all machines, the head among them.
            groups: the group of a kind of machines, where it is not the kind's name: a spot group
                and its on-demand twin boot from the same image, and pause together.
        """
        with self._lock:
            before = self._state
            here = {one.id: one for one in machines if not one.is_head}
            self._note_new(here)
            self._note_joined(here)
            self._note_gone(here)
            for name in [n for n, seen in self._state.machines.items() if self._is_late(seen)]:
                self._give_up(name, groups)
            late = self._to_end()
            if self._state != before:
                self._write()
            return late

    def ended(self, machine_id: str, reason: str) -> None:
        """Notes that a machine is being given back, in order."""
        with self._lock:
            seen = self._state.machines.get(machine_id)
            if seen is not None and not seen.ending and seen.given_up is None:
                # Ray gives back a machine whose node has left, also if Azure is about to take it.
                if self._is_known(self._members.evicted, machine_id):
                    self.teller.tell("evicted", seen.kind, machine_id, EVICTED)
                else:
                    self.teller.tell("drained", seen.kind, machine_id, reason)
                self._set(machine_id, replace(seen, ending=True, ended=self._clock()))
                self._write()

    def paused(self, group: str) -> str | None:
        """Why nothing is launched for a group; None if it is not paused."""
        with self._lock:
            return self._state.paused.get(group)

    def follow(self, settings: str) -> None:
        """Takes the cluster's settings, a digest of them: others than before lift every pause."""
        with self._lock:
            if settings == self._state.settings:
                return
            for group in self._state.paused:
                self.teller.resumed(group, "the cluster's settings have changed")
            self._state = replace(self._state, failed={}, paused={}, settings=settings)
            self._write()

    def _note_new(self, here: Mapping[str, Machine]) -> None:
        for name in here.keys() - self._state.machines.keys():
            kind = here[name].node_type
            self._set(name, Seen(kind, self._clock()))
            self.teller.tell("launched", kind, name, "by the autoscaler")

    def _note_joined(self, here: Mapping[str, Machine]) -> None:
        waiting = [
            name
            for name, seen in self._state.machines.items()
            if name in here and not seen.joined and not seen.ending and seen.given_up is None
        ]
        if not waiting:
            return
        try:
            members = self._members.names()
        except Exception as error:  # Ray's errors have no common class; the next tick asks again
            log.warning("the members of the cluster are unknown: %s", error)
            # One that has joined would look as if it had not.
            self._began = self._clock()
            return
        for name in members.intersection(waiting):
            seen = self._state.machines[name]
            self._set(name, replace(seen, joined=True))
            failed = {kind: why for kind, why in self._state.failed.items() if kind != seen.kind}
            self._state = replace(self._state, failed=failed)
            took = f"{self._clock() - seen.since:.0f} s after its launch"
            self.teller.tell("joined", seen.kind, name, took)

    def _note_gone(self, here: Mapping[str, Machine]) -> None:
        for name in self._state.machines.keys() - here.keys():
            seen = self._state.machines[name]
            if not seen.ending and seen.given_up is None:
                kind, reason = self._end_of(name, seen)
                self.teller.tell(kind, seen.kind, name, reason)
            elif seen.ended is not None and self._clock() > seen.ended + LATE_S:
                # Of several ends the last one counts, and it was paid for until now.
                self.teller.tell("drained", seen.kind, name, "Azure has deleted it only now")
        kept = {name: seen for name, seen in self._state.machines.items() if name in here}
        self._state = replace(self._state, machines=kept)

    def _end_of(self, name: str, seen: Seen) -> tuple[Kind, str]:
        if self._is_known(self._members.evicted, name):
            return "evicted", EVICTED
        if seen.joined and self._is_known(self._members.drained, name):
            return "drained", DRAINED
        return "lost", "its machine is gone" if seen.joined else "its machine went before it joined"

    def _is_known(self, ask: Callable[[str], bool], name: str) -> bool:
        try:
            return ask(name)
        except Exception as error:  # as above
            log.warning("how %s ended is unknown: %s", name, error)
            return False

    def _is_late(self, seen: Seen) -> bool:
        waited = self._clock() - max(seen.since, self._began)
        waits = not seen.joined and not seen.ending and seen.given_up is None
        return waits and waited > self._timeout_s

    def _to_end(self) -> list[str]:
        """The machines that are given back now, or again; notes the time."""
        now, names = self._clock(), []
        for name, seen in self._state.machines.items():
            if seen.given_up is not None and now >= seen.given_up:
                names.append(name)
                self._set(name, replace(seen, given_up=now + END_AGAIN_S))
        return names

    def _give_up(self, name: str, groups: Mapping[str, str]) -> None:
        seen = self._state.machines[name]
        why = self._why(name)
        reason = f"it did not join within {self._timeout_s / 60:.0f} minutes"
        if why:
            reason += f": {why}"
        log.error("%s is given back: %s", name, reason)
        self.teller.tell("gave-up", seen.kind, name, reason)
        self._set(name, replace(seen, given_up=self._clock()))
        failed = [*self._state.failed.get(seen.kind, ()), reason]
        self._state = replace(self._state, failed={**self._state.failed, seen.kind: failed})
        group = groups.get(seen.kind, seen.kind)
        if len(failed) >= TRIES and group not in self._state.paused:
            in_a_row = f"{len(failed)} machines in a row did not join"
            self._pause(group, f"{in_a_row}; the last one: {reason}")

    def _pause(self, group: str, reason: str) -> None:
        log.error("group %s is paused: %s", group, reason)
        self._state = replace(self._state, paused={**self._state.paused, group: reason})
        self.teller.paused(group, reason)

    def _set(self, name: str, seen: Seen) -> None:
        self._state = replace(self._state, machines={**self._state.machines, name: seen})

    def _write(self) -> None:
        try:
            write_private(self._file, json.dumps(asdict(self._state)))
        except OSError as error:  # a full disk must not stop the autoscaler
            log.error("what is known of the machines is not kept: %s", error)


def _read(file: Path) -> State:
    try:
        found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        machines = {name: Seen(**seen) for name, seen in found.pop("machines").items()}
        return State(machines=machines, **found)
    except FileNotFoundError:
        return State()
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        log.warning("what was known of the machines cannot be read: %s", error)
        return State()
