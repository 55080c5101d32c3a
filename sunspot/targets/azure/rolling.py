"""Workers with an older boot are rolled: an `up` replaces them, a share of a group at a time.

A scale set's new model leaves its VMs as they are (Microsoft, "Modify a Virtual Machine Scale
Set"). So after Pulumi's engine has run, workers whose boot is not the one in the head's settings
are drained and deleted, idle ones first. A fixed group gets each VM back before the next ones go;
what an elastic one needs, Ray's autoscaler launches, and that joins first, too. A boot that does
not come up stops the roll.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sunspot.errors import SunspotError, UsageError
from sunspot.node import teller
from sunspot.node.collector import BOOT_LABEL, GROUP_LABEL
from sunspot.ray import demand, feasibility
from sunspot.spec import ScalingGroup
from sunspot.targets.azure import by_hand, missing_role, scaling
from sunspot.targets.azure.boots import Before, groups_of
from sunspot.targets.azure.credentials import Endpoints
from sunspot.targets.azure.draining import StillWorkingError, Workers
from sunspot.targets.azure.scaling import Cluster
from sunspot.targets.members import label
from sunspot.targets.protocol import UP_TIMEOUT_S, Lasting, Progress

# At most one worker in so many goes at a time, and at least one.
SHARE = 4
JOIN_LIMIT_S = UP_TIMEOUT_S
# A raylet that has lost its head looks for it that long, and then ends.
REJOIN_LIMIT_S = 600.0  # cloud_init/render.py: HEAD_AWAY_S
# The head lifts a pause at the first tick that sees new settings.
LIFT_LIMIT_S = 60.0
POLL_S = 3.0


def roll(
    cluster: Cluster, old: Before, progress: Progress, endpoints: Endpoints, *, now: bool
) -> None:
    """Replaces the workers with an older boot; returns when the last ones have gone and come.

    Args:
        cluster: the cluster, whose head answers.
        old: what it had before the engine ran.
        progress: called with each step.
        endpoints: the addresses of Azure.
        now: whether they are deleted with what runs on them.

    Raises:
        UsageError: some still work at DRAIN_LIMIT_S.
        SunspotError: a replacement did not join; Azure or Ray refused, or did not answer.
    """
    from sunspot.node.azure.arm import ArmError
    from sunspot.node.machines import LaunchDeniedError, LaunchRefusedError

    note = _how_it_goes_on(cluster.stack.name)
    try:
        _roll(cluster, old, progress, endpoints, now=now)
    except (ArmError, LaunchRefusedError, LaunchDeniedError) as error:
        failure = SunspotError(missing_role.explained(str(error)))
        failure.add_note(note)
        raise failure from error
    except (SunspotError, KeyboardInterrupt) as error:
        if not isinstance(error, UsageError):  # which says so itself
            error.add_note(note)
        raise


def _how_it_goes_on(name: str) -> str:
    """What to do where a roll ended early."""
    return (
        "Workers with the older boot that do not drain go on working. Go on, and give fixed groups "
        f"the workers back that they lack: sunspot up {name} · delete older workers with what runs "
        f"on them: sunspot up {name} --now"
    )


def _roll(
    cluster: Cluster, old: Before, progress: Progress, endpoints: Endpoints, *, now: bool
) -> None:
    groups = groups_of(cluster.stack)
    try:
        settings = scaling.running(cluster.vm, endpoints)
    except SunspotError as error:  # as where the engine's program asks, an `up` goes on without it
        progress(
            Lasting(
                "warning: cannot see which workers have an older boot, so none is replaced: "
                f"{error}"
            )
        )
        return
    if settings is None:
        return
    kinds = [kind for kind in settings.boots if kind in groups]
    rejoin_by = time.monotonic() + REJOIN_LIMIT_S
    for kind in kinds:
        least, most = by_hand.limits(settings, groups[kind])
        workers = Workers(cluster, {kind: least}, progress, endpoints)
        made = _Kind(
            name=kind,
            group=groups[kind],
            wanted=settings.boots[kind],
            target=least,
            most=most,
            old=old,
        )
        roll = _Roll(cluster, workers, made, progress, now=now)
        if old.head_goes and not now:
            roll.wait_for_those_of_before(max(0.0, rejoin_by - time.monotonic()))
        roll.run()


@dataclass(frozen=True, kw_only=True)
class _Kind:
    """A node type that is rolled.

    Attributes:
        name: its name.
        group: its group.
        wanted: what its machines are to boot from.
        target: the number of a fixed group's workers, or the least of an elastic one.
        most: the most workers of the group.
        old: what the cluster had before.
    """

    name: str
    group: ScalingGroup
    wanted: str
    target: int
    most: int
    old: Before

    def is_outdated(self, machine: str, node: Mapping[str, Any] | None) -> bool:
        """Whether a machine has an older boot, by the node that it is or was in Ray, if any."""
        if node is None:
            return self.old.outdates(self.name, machine, self.wanted)
        return label(node, BOOT_LABEL) != self.wanted


class _Roll:
    """The roll of one node type."""

    def __init__(
        self, cluster: Cluster, workers: Workers, kind: _Kind, progress: Progress, *, now: bool
    ) -> None:
        self._cluster = cluster
        self._workers = workers
        self._kind = kind
        self._progress = progress
        self._now = now

    @property
    def _is_fixed(self) -> bool:
        return not self._kind.group.is_autoscaled()

    def wait_for_those_of_before(self, limit_s: float) -> None:
        """Gives the machines of before so long to find the new head."""
        self._wait(self._away, limit_s)

    def run(self) -> None:
        """Replaces what has an older boot."""
        kind = self._kind.name
        first = self._outdated()
        if not first:
            return
        share = max(1, len(self._workers.here()) // SHARE)
        self._progress(
            f"{kind}: {len(first)} workers have an older boot, and are replaced, {share} at a time"
        )
        # What was there at the start, of an elastic group that may be idle.
        least = self._kind.target if self._is_fixed else min(self._kind.target, self._count())
        self._wait_for_joins(least, enough=0)
        while batch := self._outdated()[:share]:
            enough = min(self._count(), self._kind.most)
            self._end(batch)
            self._wait_for_joins(least, enough)
        self._progress(Lasting(f"{kind}: {len(first)} workers with an older boot were replaced"))

    # What is there

    def _outdated(self) -> list[str]:
        """The machines with an older boot: those without work first."""
        nodes = self._workers.nodes()
        found = [
            one.id
            for one in self._workers.here()
            if self._kind.is_outdated(one.id, nodes.get(one.id.lower()))
        ]
        if not found:
            return []
        busy = self._busy()
        return sorted(found, key=lambda one: _rank(nodes.get(one.lower()), busy))

    def _busy(self) -> set[str]:
        """The nodes on which something is in use, as Ray calls them."""
        from sunspot.ray.jobs import JobClient

        used = demand.used(JobClient(self._cluster.handle).node_summary())
        return {name for name, amounts in used.items() if any(amounts.values())}

    def _coming(self) -> list[str]:
        """The machines of the new boot that are not members yet."""
        nodes = self._workers.nodes()
        return [
            one.id
            for one in self._workers.here()
            if not self._kind.is_outdated(one.id, node := nodes.get(one.id.lower()))
            and not _is_alive(node)
        ]

    def _away(self) -> list[str]:
        """The machines of before that are not members, since the head was replaced."""
        members, known = self._workers.members(), self._kind.old.machines
        here = [one.id.lower() for one in self._workers.here()]
        return [one for one in here if one in known and one not in members]

    def _count(self) -> int:
        """How many members the group has, of each market."""
        types, members = self._kind.group.node_types(), self._workers.members().values()
        return sum(label(one, GROUP_LABEL) in types for one in members)

    def _lacking(self, least: int, enough: int) -> list[str]:
        """What an elastic group waits for: machines that come, its minimum, room for work."""
        if coming := self._coming():
            return coming
        here = self._count()
        if here < least:
            return [f"{least - here} of at least {least} workers"]
        if here < enough and self._work_waits():
            return [f"{enough - here} of {enough} workers, which waiting work needs,"]
        return []

    def _paused(self) -> list[str]:
        """Why the head launches nothing for the group any more; a shortage, in contrast, ends."""
        about = teller.about(self._kind.group.name)
        found = self._cluster.notices()
        return [one.text for one in found if one.about == about and one.until is None]

    def _work_waits(self) -> bool:
        """Whether work waits that these machines could do."""
        from sunspot.ray.jobs import JobClient

        types = feasibility.node_types(self._cluster.stack)
        own = [one for one in types if self._kind.name in one.groups]
        waiting = demand.waiting(JobClient(self._cluster.handle))
        bundles = [bundle for one in waiting for bundle in one.bundles]
        return any(feasibility.can_hold(bundle, own) for bundle in bundles)

    # What is done

    def _end(self, batch: Sequence[str]) -> None:
        """Has machines leave, and gives a fixed group as many back as have gone."""
        try:
            deleted = self._workers.leave(self._kind.name, batch, drained=not self._now)
        except StillWorkingError as error:
            self._create(len(error.deleted))
            raise UsageError(
                f"{self._kind.name}: {error}. {_how_it_goes_on(self._cluster.stack.name)}"
            ) from error
        self._create(len(deleted))

    def _create(self, count: int) -> None:
        """Raises a fixed group's capacity again, which has sunk with the VMs that were deleted.

        What was evicted meanwhile, Azure restores itself.
        """
        from sunspot.node.machines import LaunchDeniedError

        missing = self._kind.target - len(self._workers.here())
        count = min(count, missing)
        if not self._is_fixed or count <= 0:
            return
        self._progress(f"creating {count} VMs for {self._kind.name}")
        try:
            self._workers.machines.create(self._kind.name, count)
        except LaunchDeniedError:
            if len(self._workers.here()) < self._kind.target:
                raise
            # Another `up` was faster.

    def _wait_for_joins(self, least: int, enough: int) -> None:
        """Waits for a fixed group's new machines, or until an elastic one lacks nothing.

        Raises:
            SunspotError: they did not come in time, or the head has paused the group.
        """
        awaited = self._coming
        if not self._is_fixed:
            awaited = functools.partial(self._lacking, least, enough)
        if late := self._wait(awaited, JOIN_LIMIT_S):
            raise SunspotError(self._refusal(late))
        if not self._is_fixed and (paused := self._wait(self._paused, LIFT_LIMIT_S, "")):
            raise SunspotError(f"{paused[0]}; no more workers of it are replaced")

    def _wait(
        self, awaited: Callable[[], list[str]], limit_s: float, to_do: str = " to join"
    ) -> list[str]:
        """Waits until nothing is awaited any more; returns what has been for over the limit."""
        since: dict[str, float] = {}
        said = ""
        while found := awaited():
            now = time.monotonic()
            since = {one: since.get(one, now) for one in found}
            if late := [one for one, began in since.items() if now - began > limit_s]:
                return late
            if (text := f"{self._kind.name}: waiting for {', '.join(found)}{to_do}") != said:
                self._progress(text)
                said = text
            time.sleep(POLL_S)
        return []

    def _refusal(self, late: Sequence[str]) -> str:
        from sunspot.node.azure.serial_log import SerialLog

        name, group = self._cluster.stack.name, self._cluster.vm.rpartition("/virtualMachines/")[0]
        limit = f"{JOIN_LIMIT_S / 60:.0f} minutes"
        here = {one.id for one in self._workers.here()}
        machines = [one for one in late if one in here]
        if not machines:
            return (
                f"{self._kind.name}: {late[0]} have not joined within {limit}, so no more workers "
                f"are replaced; why: sunspot status {name}"
            )
        why = SerialLog(self._workers.arm, group).why(machines[0])
        left = len(self._outdated())
        return (
            f"{self._kind.name}: {', '.join(machines)} did not join within {limit}"
            f"{f' ({why})' if why else ''}, so no more workers are replaced; {left} have the older "
            f"boot. See: sunspot logs --stack {name} --node {machines[0]} · when what it boots "
            f"from is mended: sunspot up {name}"
        )


def _is_alive(node: Mapping[str, Any] | None) -> bool:
    return node is not None and node["state"] == "ALIVE"


def _rank(node: Mapping[str, Any] | None, busy: set[str]) -> int:
    """Which workers go first: those that do not work, those that drain, idle ones."""
    if node is None or not _is_alive(node):
        return 0
    if "drain" in (node.get("state_message") or "").lower():
        return 1
    return 3 if node["node_name"] in busy else 2
