"""Workers with an older boot are rolled: an `up` replaces them, a share of a group at a time.

A scale set's new model leaves its VMs as they are (Microsoft, "Modify a Virtual Machine Scale
Set"). So after Pulumi's engine has run, workers whose boot is not the one in the head's settings
are drained and deleted, idle ones first. A fixed group gets each VM back before the next ones go;
what an elastic one needs, Ray's autoscaler launches. A boot that does not come up stops the roll.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from sunspot.errors import SunspotError, UsageError
from sunspot.node.collector import BOOT_LABEL, GROUP_LABEL
from sunspot.ray import demand
from sunspot.spec import ScalingGroup
from sunspot.stack import Stack
from sunspot.targets.azure import by_hand, missing_role, scaling
from sunspot.targets.azure.credentials import Endpoints
from sunspot.targets.azure.draining import StillWorkingError, Workers
from sunspot.targets.azure.scaling import Cluster
from sunspot.targets.protocol import UP_TIMEOUT_S, Lasting, Progress

if TYPE_CHECKING:
    from sunspot.node.azure.live import LiveSettings
    from sunspot.ray.handle import ClusterHandle

# At most one worker in so many goes at a time, and at least one.
SHARE = 4
JOIN_LIMIT_S = UP_TIMEOUT_S
# A raylet that has lost its head asks for it again every few seconds.
REJOIN_LIMIT_S = 120.0
POLL_S = 3.0


@dataclass(frozen=True, kw_only=True)
class Before:
    """What a cluster had before Pulumi's engine ran.

    Attributes:
        boots: what its node types were to boot from, by its settings.
        machines: the names of its workers' VMs, in lower case.
        head_goes: whether the engine replaced its head, which workers of the same version of Ray
            find again.
    """

    boots: Mapping[str, str] = field(default_factory=dict)
    machines: frozenset[str] = frozenset()
    head_goes: bool = False

    def outdates(self, kind: str, machine: str, wanted: str) -> bool:
        """Whether a machine is older than the boot that its kind is to have now."""
        return self.boots.get(kind) != wanted and machine.lower() in self.machines


def before(stack: Stack, vm: str, endpoints: Endpoints, *, head_goes: bool = False) -> Before:
    """What the cluster has whose head is this VM; nothing where Azure does not say it.

    Args:
        stack: the stack as it was brought up.
        vm: the ARM id of the head's VM.
        endpoints: the addresses of Azure.
        head_goes: whether the engine will replace the head, and workers can join the new one.
    """
    from sunspot.node.azure.arm import ArmError

    kinds = dict.fromkeys(_groups(stack), 0)
    try:
        found = scaling.running(vm, endpoints)
        arm = scaling.arm_of(vm, endpoints)
        machines = scaling.machines_of(stack.name, vm, arm, kinds).list()
    except (ArmError, SunspotError):
        # The engine says what is wrong with the login, and writes settings that can be read.
        return Before(head_goes=head_goes)
    names = frozenset(one.id.lower() for one in machines if not one.is_head)
    boots = {} if found is None else found.boots
    return Before(boots=boots, machines=names, head_goes=head_goes)


def outdated(stack: Stack, vm: str, handle: ClusterHandle, endpoints: Endpoints) -> list[str]:
    """How many workers of each node type have an older boot, a line each, and what rolls them."""
    found = scaling.running(vm, endpoints)
    boots = {} if found is None else found.boots
    labels = [one.get("labels") or {} for one in scaling.alive(handle)]
    lines: list[str] = []
    for kind, wanted in boots.items():
        own = [of.get(BOOT_LABEL) for of in labels if of.get(GROUP_LABEL) == kind]  # type: ignore[union-attr]
        if old := sum(boot != wanted for boot in own):
            lines.append(
                f"{old} of {len(own)} workers of {kind} have an older boot than new ones get; to "
                f"replace them, a quarter of them at a time: sunspot up {stack.name}"
            )
    return lines


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
    groups = _groups(cluster.stack)
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
    for kind in kinds:
        target = _target(settings, groups[kind])
        workers = Workers(cluster, {kind: target}, progress, endpoints)
        made = _Kind(
            name=kind, group=groups[kind], wanted=settings.boots[kind], target=target, old=old
        )
        _Roll(cluster, workers, made, progress, now=now).run()


def _groups(stack: Stack) -> dict[str, ScalingGroup]:
    """The group of each node type."""
    groups = stack.cluster.scaling_groups
    return {kind: group for group in groups for kind in group.node_types()}


def _target(settings: LiveSettings, group: ScalingGroup) -> int:
    """How many workers a fixed group has, or how many an elastic one has at least."""
    return by_hand.limits(settings, group)[0]


@dataclass(frozen=True, kw_only=True)
class _Kind:
    """A node type that is rolled.

    Attributes:
        name: its name.
        group: its group.
        wanted: what its machines are to boot from.
        target: the number of a fixed group's workers, or the least of an elastic one.
        old: what the cluster had before.
    """

    name: str
    group: ScalingGroup
    wanted: str
    target: int
    old: Before

    def is_outdated(self, machine: str, node: Mapping[str, Any] | None) -> bool:
        """Whether a machine has an older boot, by the node that it is or was in Ray, if any."""
        if node is None:
            return self.old.outdates(self.name, machine, self.wanted)
        return (node.get("labels") or {}).get(BOOT_LABEL) != self.wanted


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

    def run(self) -> None:
        kind = self._kind.name
        if self._kind.old.head_goes:
            self._wait(self._away, REJOIN_LIMIT_S)
        first = self._outdated()
        if not first:
            return
        share = max(1, len(self._workers.here()) // SHARE)
        self._progress(
            f"{kind}: {len(first)} workers have an older boot, and are replaced, {share} at a time"
        )
        # What was there at the start, of an elastic group that may be idle.
        least = self._kind.target if self._is_fixed else min(self._kind.target, self._count())
        self._wait_for_joins(least)
        while batch := self._outdated()[:share]:
            self._end(batch)
            self._wait_for_joins(least)
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
        return sum((one.get("labels") or {}).get(GROUP_LABEL) in types for one in members)

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

    def _wait_for_joins(self, least: int) -> None:
        """Waits for a fixed group's new machines, or until an elastic one has its minimum.

        Raises:
            SunspotError: they did not come in time.
        """
        if self._is_fixed:
            late = self._wait(self._coming, JOIN_LIMIT_S)
            if late:
                raise SunspotError(self._refusal(late))
            return
        if late := self._wait(functools.partial(self._short, least), JOIN_LIMIT_S):
            raise SunspotError(
                f"{self._kind.name}: {late[0]} have not joined within {JOIN_LIMIT_S / 60:.0f} "
                "minutes, so no more workers are replaced; why: sunspot status "
                f"{self._cluster.stack.name}"
            )

    def _short(self, least: int) -> list[str]:
        here = self._count()
        return [f"{least - here} of at least {least} workers"] if here < least else []

    def _wait(self, awaited: Callable[[], list[str]], limit_s: float) -> list[str]:
        """Waits until nothing is awaited any more; returns what still is at the limit."""
        deadline, said = time.monotonic() + limit_s, ""
        while found := awaited():
            if time.monotonic() > deadline:
                return found
            if (text := f"{self._kind.name}: waiting for {', '.join(found)} to join") != said:
                self._progress(text)
                said = text
            time.sleep(POLL_S)
        return []

    def _refusal(self, late: Sequence[str]) -> str:
        from sunspot.node.azure.serial_log import SerialLog

        name, group = self._cluster.stack.name, self._cluster.vm.rpartition("/virtualMachines/")[0]
        why = SerialLog(self._workers.arm, group).why(late[0])
        left = len(self._outdated())
        return (
            f"{self._kind.name}: {', '.join(late)} did not join within {JOIN_LIMIT_S / 60:.0f} "
            f"minutes{f' ({why})' if why else ''}, so no more workers are replaced; {left} have "
            f"the older boot. See: sunspot logs --stack {name} --node {late[0]} · when what it "
            f"boots from is mended: sunspot up {name}"
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
