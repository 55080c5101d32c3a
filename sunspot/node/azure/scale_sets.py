"""The `Machines` of Azure: the VMs of a cluster's Flexible scale sets.

Each Ray node type has a scale set, which grows by its `sku.capacity` and from which single VMs are
deleted by name (Microsoft's "Orchestration modes API comparison": the batch delete works for
Flexible sets, and their instance id is the VM's name). Capacity is never lowered while the set has
VMs, not even to their number: Azure deletes as many that run as it sinks, and adds as many as it
rises (dataplat/dbatools#10540). VM names are not reused: Azure appends eight random characters.
"""

from __future__ import annotations

import contextlib
import logging
import math
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from itertools import chain
from typing import Any

from sunspot.node.azure import imds, refusals
from sunspot.node.azure.arm import BASE_URL, Answer, Arm, ArmError, OperationFailedError
from sunspot.node.azure.vms import Cluster, Vm, allowed, capacity_of, vm_of
from sunspot.node.machines import LaunchDeniedError, LaunchRefusedError, Machine

COMPUTE_VERSION = "2024-11-01"

# Ray gives a launch 600 s and then repeats it (RAY_AUTOSCALER_RECONCILE_REQUEST_TIMEOUT, 2.60):
# a launch that took longer would create machines that Ray does not count.
LAUNCH_TIMEOUT_S = 540.0
# A termination delays Ray's next launches, which run in the same thread.
CHANGE_TIMEOUT_S = 60.0
CHANGE_PAUSE_S = 2.0
# A newer change of the set may end a deletion (kubernetes/autoscaler#9505 repeats it, too).
DELETE_AGAIN_S = 30.0
CHANGING = frozenset({"creating", "updating"})

# Azure allows a subscription 300 pages of such lists a minute in a region (its page "Compute
# throttling limits", High Cost Get VM). A cluster takes a quarter: at Ray's tick of five seconds,
# six pages each time, and fewer lists where they are longer.
PAGE_PAUSE_S = 60 / (300 / 4)
PAGES_A_TICK = 6

# Another change of the set came first, or is still in progress.
CONFLICTS = frozenset({409, 412})

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class _Locks:
    """For each scale set, one launch at a time (from request to end) and one change at a time."""

    launch: threading.Lock = field(default_factory=threading.Lock)
    change: threading.Lock = field(default_factory=threading.Lock)


def create(config: Mapping[str, Any]) -> ScaleSetMachines:
    """The machines that the autoscaler's config describes.

    Args:
        config: Cluster's fields, and `identity_client_id`, the client id of the identity that may
            change the scale sets; optionally `imds_url`, `arm_url` and `delete_again_s`.
    """
    tokens = imds.Imds(config.get("imds_url", imds.BASE_URL), config["identity_client_id"])
    given = {one.name: config[one.name] for one in fields(Cluster) if one.name in config}
    arm = Arm(tokens, config.get("arm_url", BASE_URL))
    again_s = config.get("delete_again_s", DELETE_AGAIN_S)
    return ScaleSetMachines(Cluster(**given), arm, delete_again_s=again_s)


class ScaleSetMachines:
    """Grows and shrinks the scale sets of one cluster. Thread-safe.

    Its requests are idempotent, so a lost answer does no harm: a capacity is an absolute number,
    and a VM is deleted by its name.

    Args:
        cluster: where the machines are.
        arm: the client of ARM.
        delete_again_s: when a machine is deleted again that neither left nor is leaving.
    """

    def __init__(
        self, cluster: Cluster, arm: Arm, *, delete_again_s: float = DELETE_AGAIN_S
    ) -> None:
        self._cluster = cluster
        self._arm = arm
        self._delete_again_s = delete_again_s
        self._group = (
            f"/subscriptions/{cluster.subscription_id}/resourceGroups/{cluster.resource_group}"
            "/providers/Microsoft.Compute"
        )
        # Azure keeps the case of names, and compares them without it.
        self._types = {name.lower(): kind for kind, name in cluster.scale_sets.items()}
        self._seen: dict[str, Machine] = {}  # replaced as a whole, never changed
        self._list_again = -math.inf  # on the monotonic clock
        self._leaving: dict[str, float] = {}  # when a VM's deletion was last requested
        self._locks = {name: _Locks() for name in self._types}
        # A group's, from what is there to the request for more: its two sets share a maximum.
        self._room = {kind: threading.Lock() for kind in cluster.scale_sets}

    def list(self) -> list[Machine]:
        """The head and every VM of the sets that is not being deleted.

        Of hundreds of machines, it may be the list of a tick before.
        """
        if time.monotonic() < self._list_again:
            return [*self._seen.values()]
        head = Machine(
            id=self._cluster.head, node_type=self._cluster.head_type, is_head=True, running=True
        )
        pages = list(self._pages())
        if len(pages) > PAGES_A_TICK:
            self._list_again = time.monotonic() + len(pages) * PAGE_PAUSE_S
        vms = [*chain.from_iterable(pages)]
        self._delete_again(vms)
        machines = [head, *(self._machine(vm) for vm in vms if vm.state != "deleting")]
        self._seen = {machine.id: machine for machine in machines}
        return machines

    def find(self, machine_id: str) -> Machine | None:
        """A machine as of the last `list`, which is called only for an unknown one."""
        if machine_id not in self._seen:
            self.list()
        return self._seen.get(machine_id)

    def create(self, node_type: str, count: int) -> None:
        """Raises the set's capacity and waits until Azure has created the VMs, or has refused.

        `list` has the VMs before that. The set never gets more than the type's maximum, nor more
        than its group's together with the other market's, whatever Ray believes to be there.

        Raises:
            LaunchRefusedError: Azure has no such VMs now, or the quota is used up.
            AtMaximumError: the set, or its group, has its maximum.
            LaunchDeniedError: the head's identity lacks a right.
            ArmError: anything else failed, or another change of the set came first.
            KeyError: the node type is unknown.
        """
        scale_set = self._cluster.scale_sets[node_type]
        lock = self._locks[scale_set.lower()].launch
        if not lock.acquire(timeout=LAUNCH_TIMEOUT_S):
            raise ArmError(f"{scale_set}: an earlier launch has not ended")
        try:
            if self._cluster.scale_sets.get(node_type) != scale_set:  # while it waited
                raise LaunchDeniedError(f"{node_type}: no longer the autoscaler's")
            self._launch(node_type, scale_set, count)
        finally:
            lock.release()

    def terminate(self, machine_id: str) -> None:
        """Deletes one VM of a set; ignores one that is gone, the head, and any other VM."""
        machine = self.find(machine_id)
        if machine is None or machine.is_head:
            return
        if self._delete(self._cluster.scale_sets[machine.node_type], [machine_id]) is not None:
            self._leaving[machine_id] = time.monotonic()

    def follow(self, settings: Mapping[str, Any]) -> None:
        """Takes the sets, twins and limits of a changed config.

        A set that it lacks never grows. One that is fixed from now on is no longer listed.
        """
        known = {
            kind: name
            for kind, name in self._cluster.scale_sets.items()
            if kind not in settings["fixed"]
        }
        sets = {**known, **settings["scale_sets"]}
        types = {name.lower(): kind for kind, name in sets.items()}
        self._locks = {**{name: _Locks() for name in types}, **self._locks}
        self._room = {**{kind: threading.Lock() for kind in sets}, **self._room}
        self._types = types
        self._list_again = -math.inf
        maximums = {**dict.fromkeys(known, 0), **settings["maximums"]}
        given = {name: settings[name] for name in ("minimums", "twins")}
        self._cluster = replace(self._cluster, scale_sets=sets, maximums=maximums, **given)

    def _machine(self, vm: Vm) -> Machine:
        return Machine(
            id=vm.name,
            node_type=self._types[vm.scale_set.lower()],
            is_head=False,
            running=vm.state in {"succeeded", "updating"},
        )

    def _pages(self) -> Iterator[list[Vm]]:
        # One request for all sets, not one for each: Ray calls this every five seconds.
        for page in self._arm.pages(f"{self._group}/virtualMachines", COMPUTE_VERSION):
            vms = map(vm_of, page)
            yield [vm for vm in vms if vm.scale_set.lower() in self._types]

    def _vms_of(self, scale_set: str) -> dict[str, Vm]:
        return {vm.name: vm for vm in self._staying() if vm.scale_set.lower() == scale_set.lower()}

    def _staying(self) -> Iterator[Vm]:
        vms = chain.from_iterable(self._pages())
        return (vm for vm in vms if vm.state != "deleting")

    def _launch(self, node_type: str, scale_set: str, count: int) -> None:
        with self._room[self._cluster.group(node_type)]:
            here = list(self._staying())
            before = {vm.name: vm for vm in here if vm.scale_set.lower() == scale_set.lower()}
            maximum = self._cluster.maximum(node_type, self._others(node_type, here))
            grows = maximum is not None and len(before) < maximum
            phantoms = self._phantoms(scale_set, len(before)) if grows else 0
            answer, count = self._request(scale_set, count, maximum, phantoms)
        if answer.operation is None:
            self._settle_lost(scale_set, count, before)
            return
        try:
            if not self._arm.wait(answer, LAUNCH_TIMEOUT_S):
                log.warning("%s: still growing by %d, no longer waited for", scale_set, count)
        except OperationFailedError as error:
            if refusals.is_superseded(error):
                self._read_again(scale_set, count, before)
                return
            with contextlib.suppress(ArmError):
                self._tidy(scale_set, before)
            if refusals.is_denial(error):
                raise LaunchDeniedError(f"{scale_set}: {refusals.lacking(error)}") from error
            # Whatever the cause, machines of this type could not be created now.
            raise LaunchRefusedError(f"{scale_set}: {error}") from error
        except ArmError as error:
            # Azure accepted the launch and will list the machines: losing sight is not a failure.
            log.warning("%s: growing by %d, but %s", scale_set, count, error)

    def _others(self, node_type: str, here: Sequence[Vm]) -> int:
        """How many machines the group's other set has, or will have when its change is over."""
        other = self._cluster.other_set(node_type)
        if other is None:
            return 0
        listed = sum(vm.scale_set.lower() == other.lower() for vm in here)
        capacity, state = self._read(other)
        return max(listed, capacity) if state in CHANGING else listed

    def _request(
        self, scale_set: str, count: int, maximum: int | None, phantoms: int
    ) -> tuple[Answer, int]:
        """Raises the capacity; returns ARM's answer, and by how many the maximum allowed."""
        asked: list[int] = []

        def grown(capacity: int) -> int:
            asked.append(allowed(scale_set, capacity - phantoms, count, maximum))
            return capacity + asked[-1]

        try:
            return self._resize(scale_set, grown), asked[-1]
        except ArmError as error:
            if refusals.is_refusal(error):
                raise LaunchRefusedError(f"{scale_set}: {error}") from error
            if refusals.is_denial(error):
                raise LaunchDeniedError(f"{scale_set}: {refusals.lacking(error)}") from error
            raise

    def _settle_lost(self, scale_set: str, count: int, before: Mapping[str, Vm]) -> None:
        """Waits for the machines of a launch whose answer was lost, and tidies up if they fail."""
        try:
            self._read_again(scale_set, count, before)
        except ArmError as error:
            failed = self._failed(scale_set, before)
            with contextlib.suppress(ArmError):
                self._tidy(scale_set, before)
            if failed:
                raise LaunchRefusedError(f"{scale_set}: {error}") from error
            raise

    def _read_again(self, scale_set: str, count: int, before: Mapping[str, Vm]) -> None:
        """Waits for the machines of a launch whose operation is unknown, or was ended by a change.

        The set works on at its new goal, in which the capacity is usually the launch's. Machines
        that are still coming up when the set has settled are there, too. Without them, ArmError:
        Ray then requests them again.
        """
        deadline = time.monotonic() + LAUNCH_TIMEOUT_S
        while True:
            _, state = self._read(scale_set)
            found_now = self._vms_of(scale_set).items()
            new = [vm for name, vm in found_now if name not in before and vm.state != "failed"]
            over = state not in CHANGING or time.monotonic() > deadline
            came_up = not any(vm.state in CHANGING for vm in new)
            if len(new) >= count and (came_up or over):
                return
            if over:
                came = f"{len(new)} of {count} machines came"
                raise ArmError(f"{scale_set}: the set has settled, and {came}")
            time.sleep(CHANGE_PAUSE_S)

    def _delete_again(self, vms: Sequence[Vm]) -> None:
        """Repeats the deletions that another change ended; forgets the machines that are gone."""
        now = time.monotonic()
        here = {vm.name: vm for vm in vms}
        again: dict[str, list[str]] = defaultdict(list)
        for name, since in tuple(self._leaving.items()):
            if name not in here:
                self._leaving.pop(name, None)
            elif here[name].state != "deleting" and now > since + self._delete_again_s:
                log.warning("%s was not deleted; deleting it again", name)
                self._leaving[name] = now
                again[here[name].scale_set].append(name)
        # Ray waits for the list: where Azure does not answer, it is asked once, not for each.
        with contextlib.suppress(ArmError):
            for scale_set, names in again.items():
                self._send_deletion(scale_set, names)

    def _resize(self, scale_set: str, change: Callable[[int], int]) -> Answer:
        """Sets the capacity to the result of `change` for the current one.

        A change whose answer was lost is not made twice: where the set then has the capacity that
        was asked for, the answer is the set's own, without an operation.
        """
        path = self._path(scale_set)
        maybe_done: list[int] = []

        def attempt() -> Answer:
            found = self._arm.get(path, COMPUTE_VERSION)
            capacity = capacity_of(found.body)
            wanted = capacity if capacity in maybe_done else change(capacity)
            if wanted == capacity:
                return found
            body = {"sku": {**found.body["sku"], "capacity": wanted}}
            try:
                return self._arm.send("PATCH", path, COMPUTE_VERSION, body, found.etag)
            except ArmError as error:
                if not error.unsure:
                    raise
                maybe_done.append(wanted)
                # A conflict is tried again, and reads the set then.
                if error.status in CONFLICTS or self._read(scale_set)[0] != wanted:
                    raise
                return Answer(body=None, etag=None, operation=None, is_status=False)

        return self._change(scale_set, attempt)

    def _path(self, scale_set: str) -> str:
        return f"{self._group}/virtualMachineScaleSets/{scale_set}"

    def _read(self, scale_set: str) -> tuple[int, str]:
        """The set's capacity, and its provisioningState in lower case."""
        body = self._arm.get(self._path(scale_set), COMPUTE_VERSION).body
        state = (body.get("properties") or {}).get("provisioningState", "")
        return capacity_of(body), str(state).lower()

    def _delete(self, scale_set: str, names: list[str]) -> Answer | None:
        try:
            return self._change(scale_set, lambda: self._send_deletion(scale_set, names))
        except ArmError:
            # Azure's answer for a VM that does not exist varies: 400, 404, 409. So list the VMs.
            if self._vms_of(scale_set).keys().isdisjoint(names):
                return None
            raise

    def _send_deletion(self, scale_set: str, names: list[str]) -> Answer:
        path = f"{self._path(scale_set)}/delete"
        return self._arm.send("POST", path, COMPUTE_VERSION, {"instanceIds": names})

    def _change(self, scale_set: str, attempt: Callable[[], Answer]) -> Answer:
        """Runs the changes of a set one at a time; repeats one that conflicts with another's."""
        deadline = time.monotonic() + CHANGE_TIMEOUT_S
        while True:
            with self._locks[scale_set.lower()].change:
                try:
                    return attempt()
                except ArmError as error:
                    late = time.monotonic() + CHANGE_PAUSE_S > deadline
                    lasts = refusals.is_refusal(error) or refusals.is_denial(error)
                    if error.status not in CONFLICTS or lasts or late:
                        raise
                    log.info("%s; trying again", error)
            time.sleep(CHANGE_PAUSE_S)

    def _tidy(self, scale_set: str, before: Mapping[str, Vm]) -> None:
        """Removes what a failed launch left: VMs that never started, capacity without VMs."""
        failed = self._failed(scale_set, before)
        if failed and (answer := self._delete(scale_set, failed)) is not None:
            self._arm.wait(answer, CHANGE_TIMEOUT_S)
        self._drop_phantoms(scale_set)

    def _failed(self, scale_set: str, before: Mapping[str, Vm]) -> list[str]:
        """The names of the VMs of a launch that never started."""
        here = self._vms_of(scale_set).values()
        return [vm.name for vm in here if vm.state == "failed" and vm.name not in before]

    def _drop_phantoms(self, scale_set: str) -> None:
        """Gives back the capacity of a set without VMs."""
        if scale_set.lower() in self._types and not self._count(scale_set):
            self._resize(scale_set, lambda _: 0)

    def _phantoms(self, scale_set: str, here: int) -> int:
        """For how much of its capacity a set has no VM, unless it is changing."""
        capacity, state = self._read(scale_set)
        settled = state not in CHANGING and capacity > here
        return max(0, capacity - self._count(scale_set)) if settled else 0

    def _count(self, scale_set: str) -> int:
        # One that is being deleted still has its capacity.
        return sum(vm.scale_set.lower() == scale_set.lower() for p in self._pages() for vm in p)
