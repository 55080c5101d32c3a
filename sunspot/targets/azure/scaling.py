"""Scaling by hand on Azure, without a restart.

The limits of a group that Ray's autoscaler has are in the user data of the head's VM, which the
head follows. A fixed group is its scale set, which grows at once. Workers that are too many are
drained before they go. The sizes are noted in the user data, so that the next update of the stack
keeps them.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sunspot.errors import SunspotError, UsageError
from sunspot.node.collector import GROUP_LABEL
from sunspot.node.notices import Notice
from sunspot.ray.handle import ClusterHandle
from sunspot.signals import uninterrupted
from sunspot.spec import ScalingGroup
from sunspot.spec_values import HEAD
from sunspot.stack import Stack
from sunspot.targets import abilities
from sunspot.targets.azure import by_hand, missing_role
from sunspot.targets.azure.by_hand import Limits
from sunspot.targets.azure.credentials import Endpoints, Login, NoLoginError
from sunspot.targets.azure.head_settings import COMPUTE_VERSION, PATIENCE_S, HeadSettings
from sunspot.targets.azure.plan import cluster_name, scale_set_of
from sunspot.targets.members import label
from sunspot.targets.protocol import UP_TIMEOUT_S, Progress
from sunspot.targets.scaling import Size
from sunspot.targets.ssh import RemoteCommandError, UnreachableError

if TYPE_CHECKING:
    from sunspot.node.azure.arm import Arm
    from sunspot.node.azure.live import LiveSettings
    from sunspot.node.azure.scale_sets import ScaleSetMachines

DRAIN_TIMEOUT_S = 60.0
# What the drain's own process takes at most: Ray's Python in the container, and SSH.
DRAIN_START_S = 60.0
JOIN_TIMEOUT_S = UP_TIMEOUT_S
POLL_S = 3.0
GLANCE_S = 5.0


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """A cluster to scale.

    Attributes:
        stack: its stack.
        vm: the ARM id of its head's VM.
        handle: how to reach Ray.
        run_on_head: runs a module of Sunspot's in the Python of Ray on the head, for at most so
            many seconds, as `Ssh.read` does.
        notices: what the head wants said now; raises as `Ssh.read` does.
    """

    stack: Stack
    vm: str
    handle: ClusterHandle
    run_on_head: Callable[[Sequence[str], float], str]
    notices: Callable[[], Sequence[Notice]]


def arm_of(resource: str, endpoints: Endpoints, *, is_patient: bool = True) -> Arm:
    """A client of ARM with the user's login, for the subscription of a resource.

    One that is not patient gives up after seconds.
    """
    from sunspot.node.azure.arm import READ_TIMEOUT_S, Arm

    _, _, subscription, *_ = resource.split("/")
    login = Login(endpoints, subscription=subscription)
    patience_s, timeout_s = (PATIENCE_S, READ_TIMEOUT_S) if is_patient else (GLANCE_S, GLANCE_S)
    return Arm(login, endpoints.management, patience_s=patience_s, timeout_s=timeout_s)


def check(stack: Stack, sizes: Mapping[str, Size]) -> None:
    """Checks that groups can have these sizes, without asking Azure.

    Raises:
        UsageError: there is no such group, or its size is outside 0 to its max_workers.
    """
    for name, size in sizes.items():
        _check_size(stack, name, size, abilities.group(stack, name).max_workers)


def sizes(stack: Stack, vm: str, endpoints: Endpoints) -> dict[str, Size]:
    """The size of each group that was scaled by hand.

    Raises:
        SunspotError: there is no login, or Azure does not answer.
    """
    found = running(vm, endpoints)
    return {} if found is None else by_hand.sizes(found, stack.cluster.scaling_groups)


def running(vm: str, endpoints: Endpoints | None = None) -> LiveSettings | None:
    """The settings of the cluster whose head is this VM; None if there is no such VM.

    A preview waits for it, so an ARM that does not answer within seconds is not waited for.

    Raises:
        SunspotError: there is no login, or Azure does not answer.
    """
    from sunspot.node.azure.arm import ArmError

    try:
        return HeadSettings(arm_of(vm, endpoints or Endpoints(), is_patient=False), vm).read()
    except ArmError as error:
        raise SunspotError(missing_role.explained(str(error))) from error


def capacity(scale_set: str, endpoints: Endpoints | None = None) -> int | None:
    """How many machines a set is to have, by its ARM id; None without a login to ask with.

    Raises:
        SunspotError: Azure does not say it, also after a while.
    """
    from sunspot.node.azure.arm import ArmError
    from sunspot.node.azure.vms import capacity_of

    try:
        arm = arm_of(scale_set, endpoints or Endpoints())
        return capacity_of(arm.get(scale_set, COMPUTE_VERSION).body)
    except NoLoginError:
        return None
    except ArmError as error:
        raise SunspotError(missing_role.explained(str(error))) from error


def scale(
    cluster: Cluster, wanted: Mapping[str, Size], progress: Progress, endpoints: Endpoints
) -> None:
    """Gives groups their sizes; returns when their workers are members.

    Whatever stops that, the groups have what they had before; a worker that drains is gone.

    Raises:
        UsageError: a group cannot have the size; nothing has changed.
        SunspotError: Azure refused, or a worker did not join in time.
    """
    from sunspot.node.azure.arm import ArmError
    from sunspot.node.machines import LaunchDeniedError, LaunchRefusedError

    check(cluster.stack, wanted)
    arm = arm_of(cluster.vm, endpoints)
    try:
        _Scaling(cluster, arm, wanted, progress).run()
    except (ArmError, LaunchRefusedError, LaunchDeniedError) as error:
        text = missing_role.explained(str(error))
        failure = SunspotError(f"{cluster.stack.name!r} was not scaled: {text}")
        for note in getattr(error, "__notes__", ()):
            failure.add_note(note)
        raise failure from error


def _check_size(stack: Stack, name: str, size: Size, most: int) -> None:
    if not 0 <= size.minimum <= size.highest <= most:
        raise UsageError(
            f"{name}={size} is outside 0 to {most}, its max_workers; for more, raise max_workers "
            f"of {name!r} in Pulumi.{stack.name}.yaml, then run: sunspot up {stack.name}"
        )


class _Scaling:
    """One `sunspot scale`."""

    def __init__(
        self, cluster: Cluster, arm: Arm, wanted: Mapping[str, Size], progress: Progress
    ) -> None:
        self._cluster = cluster
        self._settings = HeadSettings(arm, cluster.vm)
        self._arm = arm
        self._wanted = wanted
        self._progress = progress
        self._groups = [abilities.group(cluster.stack, name) for name in wanted]
        self._nonce = uuid.uuid4().hex
        self._limits: dict[str, Limits] = {}

    def run(self) -> None:
        self._progress("writing the new sizes into the settings of the head")
        before = self._settings.change(self._changed)
        added: dict[str, list[str]] = {}
        try:
            for group in self._groups:
                if group.is_autoscaled():
                    self._shrink(group)
                else:
                    self._resize(group, added)
            self._wait_until_members()
        except BaseException as error:
            with uninterrupted():
                self._go_back(before, added, error)
            raise

    def _changed(self, found: LiveSettings) -> LiveSettings:
        for group in self._groups:
            size = self._wanted[group.name]
            _, most = by_hand.file_limits(found, group)
            _check_size(self._cluster.stack, group.name, size, most)
            given = by_hand.wanted(by_hand.limits(found, group), group, size)
            self._limits[group.name] = given
            found = by_hand.resized(found, group, given, nonce=self._nonce)
        return found

    def _go_back(
        self, before: LiveSettings, added: Mapping[str, Sequence[str]], error: BaseException
    ) -> None:
        from sunspot.node.azure.arm import ArmError

        def restored(found: LiveSettings) -> LiveSettings:
            # Somebody else may have scaled a group meanwhile.
            ours = by_hand.entries(found)
            mine = [
                group
                for group in self._groups
                if group.name in ours and ours[group.name].nonce == self._nonce
            ]
            return by_hand.restored(found, before, mine)

        called = ", ".join(self._wanted)
        try:
            self._settings.change(restored)
            for name, machines in added.items():
                fixed = self._machines(abilities.group(self._cluster.stack, name))
                for machine in machines:
                    fixed.terminate(machine)
        except (ArmError, SunspotError) as second:
            error.add_note(
                f"and the sizes of before could not be written back ({second}); `sunspot status` "
                "shows what holds"
            )
        else:
            error.add_note(f"{called}: with the limits of before")

    # Groups of the autoscaler: it stops no worker above a lower maximum (fallback.py)

    def _shrink(self, group: ScalingGroup) -> None:
        """Removes the workers above the maximum, also one that the head makes meanwhile."""
        machines, deadline = self._machines(group), time.monotonic() + JOIN_TIMEOUT_S
        _, most = self._limits[group.name]
        while len(here := _ids(machines)) > most and time.monotonic() < deadline:
            self._remove(machines, self._to_go(here, len(here) - most))

    # Fixed groups: their scale sets

    def _machines(self, group: ScalingGroup) -> ScaleSetMachines:
        maximums = dict.fromkeys(group.node_types(), group.max_workers)
        name, vm = self._cluster.stack.name, self._cluster.vm
        return machines_of(name, vm, self._arm, maximums)

    def _resize(self, group: ScalingGroup, added: dict[str, list[str]]) -> None:
        machines = self._machines(group)
        here = _ids(machines)
        count, _ = self._limits[group.name]
        if count > len(here):
            self._progress(f"creating {count - len(here)} VMs for {group.name}")
            try:
                machines.create(group.name, count - len(here))
            finally:
                added[group.name] = [one for one in _ids(machines) if one not in here]
        elif count < len(here):
            self._remove(machines, self._to_go(here, len(here) - count))

    def _to_go(self, here: Sequence[str], count: int) -> list[str]:
        """Those that are not members first, then those that Azure lists last."""
        joined = {one["node_name"] for one in alive(self._cluster.handle)}
        return sorted(here, key=lambda one: (one in joined, -here.index(one)))[:count]

    def _remove(self, machines: ScaleSetMachines, names: Sequence[str]) -> None:
        called = ", ".join(names)
        self._progress(f"draining {called} (at most {DRAIN_TIMEOUT_S:.0f} s)")
        drain = ["sunspot.node.drain", f"--seconds={DRAIN_TIMEOUT_S:g}", *names]
        try:
            self._cluster.run_on_head(drain, DRAIN_TIMEOUT_S + DRAIN_START_S)
        except (RemoteCommandError, UnreachableError):
            # Tasks still run there: Ray retries them elsewhere.
            self._progress(f"{called}: not drained in time")
        except KeyboardInterrupt as interrupt:
            # There is no way back for a node that drains.
            interrupt.add_note(f"deleted {called} without waiting for their tasks any longer")
            raise
        finally:
            with uninterrupted():
                for name in names:
                    machines.terminate(name)

    # Ray's view

    def _wait_until_members(self) -> None:
        deadline = time.monotonic() + JOIN_TIMEOUT_S
        reported = ""
        while True:
            types = [label(one, GROUP_LABEL) for one in alive(self._cluster.handle)]
            waiting = ", ".join(self._still_awaited(types))
            if not waiting:
                return
            if time.monotonic() > deadline:
                name = self._cluster.stack.name
                raise SunspotError(
                    f"after {JOIN_TIMEOUT_S:g} s: {waiting}; see: sunspot status {name}"
                )
            if waiting != reported:
                self._progress(f"waiting: {waiting}")
                reported = waiting
            time.sleep(POLL_S)

    def _still_awaited(self, types: Sequence[object]) -> Iterable[str]:
        for group in self._groups:
            here = sum(types.count(name) for name in group.node_types())
            low, high = self._limits[group.name]
            if here < low:
                yield f"{here} of {low} workers of {group.name} joined"
            elif here > high:
                yield f"{here - high} workers of {group.name} have yet to leave"


def machines_of(stack: str, vm: str, arm: Arm, maximums: Mapping[str, int]) -> ScaleSetMachines:
    """The machines of some of a cluster's scale sets.

    Args:
        stack: the stack's name.
        vm: the ARM id of its head's VM.
        arm: a client of ARM.
        maximums: the most machines that each of their node types may have.
    """
    from sunspot.node.azure.scale_sets import ScaleSetMachines
    from sunspot.node.azure.vms import Cluster as Place

    _, _, subscription, _, resource_group, *_ = vm.split("/")
    name = cluster_name(stack)
    place = Place(
        subscription_id=subscription,
        resource_group=resource_group,
        head=vm.rpartition("/")[2],
        head_type=HEAD,
        scale_sets={kind: scale_set_of(name, kind) for kind in maximums},
        maximums=maximums,
    )
    return ScaleSetMachines(place, arm)


def alive(handle: ClusterHandle) -> list[dict[str, Any]]:
    """Ray's nodes that are members now, as its state API tells of them."""
    from sunspot.ray.jobs import JobClient

    return [one for one in JobClient(handle).state("nodes") if one["state"] == "ALIVE"]


def _ids(machines: ScaleSetMachines) -> list[str]:
    return [one.id for one in machines.list() if not one.is_head]
