"""Azure Resource Manager: the scale sets of one resource group and their VMs, in its own shapes.

Lists come in pages; a change of capacity is taken with 202 and an Azure-AsyncOperation address, a
deletion with 202 and a Location; an old If-Match is a 412; errors have ARM's body. The head's IMDS
is at the same address, for the access tokens. Scripted answers (`refusals`, `failures`) go first.

With `rights`, every action is checked: what a set's machines use at once, as in
Azure/aad-pod-identity#613 (LinkedAuthorizationFailed), and what it creates inside the operation. A
capacity is a goal: a newer change of the set ends the operation of the earlier one as Canceled, by
OperationPreempted, and the set works on (kubernetes/autoscaler#3018, #9505); see `preempt`.
"""

from __future__ import annotations

import functools
import itertools
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from waiting import wait_for

from azure_model import http_service, vm_requests
from azure_model.access_tokens import MANAGEMENT, access_token
from azure_model.arm_errors import COMPUTE, SETS, denied, error
from azure_model.compute import GROUP, VIRTUAL_MACHINES, Bills, Operation, ScaleSet, Vm
from azure_model.http_service import Reply, Request
from azure_model.imds import FakeAzure
from azure_model.resource_ids import SUBSCRIPTION, group_id
from azure_model.rights import Rights

HEAD = "sunspot-test-head"
PAGE = 2

SCALE_SETS = f"{group_id(GROUP)}/providers/Microsoft.Compute/virtualMachineScaleSets"
OPERATIONS = f"/subscriptions/{SUBSCRIPTION}/providers/Microsoft.Compute/locations/uksouth"
# Soon enough for a test; Azure says seconds.
RETRY_AFTER = {"Retry-After": "0.05"}
DELETION_S = 0.05

PREEMPTED = "The operation has been preempted by a more recent operation"
NETWORK = "Microsoft.Network"
NICS = f"{group_id(GROUP)}/providers/{NETWORK}/networkInterfaces"
DISKS = f"{group_id(GROUP)}/providers/{COMPUTE}/disks"


@dataclass
class Arm:
    """The state of one resource group, and what is to happen in it.

    `refusals`: by scale set, the error of its next launches: told at once (`status` 4xx), or after
    the VMs were begun (`status` 202), of which the first `granted` come all the same. `failures`:
    answers to any next request, or to those of the method `failing`; None drops the connection.
    `launch_polls` is how often a launch is
    asked for until it is over. `is_loud` lists ids in upper case. `on_boot` and
    `on_delete` hear of VMs, `before_patch` of a change of capacity. `rights` are those of the head;
    None checks nothing. `uses` are the actions that a set's machines need on what they use, each
    with its resource. `lost_deletions` are VMs whose next deletion is accepted, and superseded.
    `on_poll` hears of each question for an operation, which `polls_denied` refuses (403).
    `etags_ignored` takes any If-Match. `lost_answers` are changes of capacity that are carried out
    and answered by 503. `before_change` hears of a change of a VM. `on_eviction` hears of a VM that
    is to be evicted, and does it; `on_restart` of one that restarts, which takes `restart_polls`.
    `billed` are all machines that ever were, by their names.
    """

    url: str = ""
    imds: FakeAzure = field(default_factory=lambda: FakeAzure(name=HEAD, scale_set=""))
    sets: dict[str, ScaleSet] = field(default_factory=dict)
    vms: dict[str, Vm] = field(default_factory=dict)
    refusals: dict[str, list[tuple[int, str, str]]] = field(default_factory=dict)
    failures: list[Reply | None] = field(default_factory=list)
    failing: str = ""
    rights: Rights | None = None
    uses: tuple[tuple[str, str], ...] = ()
    lost_deletions: set[str] = field(default_factory=set)
    on_boot: Callable[[Vm], None] = lambda _: None
    on_delete: Callable[[str], None] = lambda _: None
    on_poll: Callable[[], None] = lambda: None
    on_eviction: Callable[[Vm], None] = lambda _: None
    on_restart: Callable[[Vm], None] = lambda _: None
    restart_polls: int = 1
    granted: int = 0
    launch_polls: int = 1
    is_loud: bool = False
    polls_denied: bool = False
    etags_ignored: bool = False
    lost_answers: int = 0
    before_patch: Callable[[ScaleSet], None] = lambda _: None
    before_change: Callable[[Vm], None] = lambda _: None
    requests: list[tuple[str, str]] = field(default_factory=list)
    operations: dict[str, Operation] = field(default_factory=dict)
    lock: threading.RLock = field(default_factory=threading.RLock)
    billed: Bills = field(default_factory=Bills)
    serial: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    def add(self, *names: str) -> None:
        for name in names:
            self.sets[name] = ScaleSet(name)

    def preempt(self, name: str, *, capacity: int | None = None, late: bool = False) -> None:
        """Has a newer change end the operations in progress of a set, which works on for a while.

        With `capacity`, the newer goal has that one, and the machines above it do not come. With
        `late`, the set says that it is done, and its machines are still coming.
        """
        scale_set = self.sets[name]
        ended = {"code": "OperationPreempted", "message": PREEMPTED}
        coming = [vm for vm in self.vms.values() if vm.scale_set == name and vm.state == "Creating"]
        for operation in self.operations.values():
            operation.error, operation.status, operation.then = ended, "Canceled", lambda: None
        if capacity is not None:
            scale_set.capacity = capacity
            for vm in coming:
                self.vms.pop(vm.name)
            return
        if not late:
            self._settle(scale_set, functools.partial(self._boot, coming))

    def _settle(self, scale_set: ScaleSet, then: Callable[[], None]) -> None:
        """The set works on for a while, though nobody asks how far it is."""
        scale_set.state = "Updating"

        def settle() -> None:
            with self.lock:
                then()
                scale_set.state = "Succeeded"

        threading.Timer(DELETION_S, settle).start()

    def wait_for_loss(self, *names: str) -> None:
        """Returns when these VMs are gone."""
        wait_for(f"the end of {names}", lambda: self.vms.keys().isdisjoint(names))

    def answer(self, request: Request) -> Reply:
        """The answer to one request."""
        if request.path.startswith("/metadata/"):
            return self.imds.answer(request)
        if request.path.startswith(vm_requests.CONSOLES):
            return vm_requests.console(self, request)
        with self.lock:
            self.requests.append((request.method, request.path))
            if request.headers.get("Authorization") != f"Bearer {access_token(MANAGEMENT)}":
                return error(401, "AuthenticationFailed", "no token")
            if self.failures and self.failing in {"", request.method}:
                failure = self.failures.pop(0)
                if failure is None:
                    raise ConnectionError("the connection is dropped")
                return failure
            return self._right(request)

    def answer_user(self, request: Request) -> Reply:
        """The answer to a user who may do everything, and whose token was checked elsewhere."""
        with self.lock:
            self.requests.append((request.method, request.path))
            rights, self.rights = self.rights, None
            polls, self.polls_denied = self.polls_denied, False
            try:
                return self._right(request)
            finally:
                self.rights, self.polls_denied = rights, polls

    def _right(self, request: Request) -> Reply:
        if request.path.startswith(OPERATIONS):
            if self.polls_denied:
                return denied(f"{COMPUTE}/locations/operations/read", request.path)
            return self._operation(request.path)
        if "api-version" not in request.query:
            return error(400, "MissingApiVersionParameter", "no api-version")
        if request.path == VIRTUAL_MACHINES:
            if lacks := self.lacks((f"{COMPUTE}/virtualMachines/read", VIRTUAL_MACHINES)):
                return lacks
            return self._list(int(request.query.get("$skiptoken", 0)))
        if request.path.startswith(f"{VIRTUAL_MACHINES}/"):
            return vm_requests.answer(self, request)
        if request.path == SCALE_SETS:  # Virtual Machine Scale Sets - List
            return Reply(200, {"value": [one.body() for one in self.sets.values()]})
        return self._of_scale_set(request)

    def _of_scale_set(self, request: Request) -> Reply:
        _, _, rest = request.path.partition(f"{SCALE_SETS}/")
        name, _, action = rest.partition("/")
        if name not in self.sets:
            return error(404, "ResourceNotFound", f"no {request.path}")
        scale_set = self.sets[name]
        wanted = {"GET": "read", "PATCH": "write", "POST": "delete/action"}[request.method]
        if lacks := self.lacks((f"{SETS}/{wanted}", f"{SCALE_SETS}/{name}")):
            return lacks
        match request.method, action:
            case "GET", "":
                return Reply(200, scale_set.body())
            case "PATCH", "":
                capacity = json.loads(request.body)["sku"]["capacity"]
                answer = self._resize(scale_set, request.headers.get("If-Match"), capacity)
                return self._lost(scale_set, answer) if self.lost_answers else answer
            case "POST", "delete":
                return self._delete(scale_set, json.loads(request.body)["instanceIds"])
        return error(405, "MethodNotAllowed", f"{request.method} {request.path}")

    def _lost(self, scale_set: ScaleSet, answer: Reply) -> Reply:
        """What comes in the place of an answer to a change, which is carried out all the same."""
        if answer.status >= 400:
            return answer
        self.lost_answers -= 1
        operation = list(self.operations.values())[-1]
        self._settle(scale_set, operation.then)
        return error(503, "ServiceUnavailable", "try again later")

    def lacks(self, *needs: tuple[str, str], linked: str = "") -> Reply | None:
        """The answer to a request without one of these rights (action, resource); None with all."""
        for action, scope in needs:
            if self.rights is not None and not self.rights.allows(action, scope):
                return denied(action, scope, linked)
        return None

    def _list(self, start: int) -> Reply:
        vms = list(self.vms.values())
        if start == 0:
            self.billed.see({vm.name for vm in vms if vm.state != "Deleting"})
        page: dict[str, Any] = {"value": [self._vm(vm) for vm in vms[start : start + PAGE]]}
        if start + PAGE < len(vms):
            query = f"api-version=x&$skiptoken={start + PAGE}"
            page["nextLink"] = f"{self.url}{VIRTUAL_MACHINES}?{query}"
        return Reply(200, page)

    def _vm(self, vm: Vm) -> dict[str, Any]:
        properties: dict[str, Any] = {"provisioningState": vm.state}
        if vm.scale_set is not None:
            identifier = f"{SCALE_SETS}/{vm.scale_set}"
            loud = identifier.upper() if self.is_loud else identifier
            properties["virtualMachineScaleSet"] = {"id": loud}
        return {"name": vm.name, "location": "uksouth", "properties": properties}

    def _resize(self, scale_set: ScaleSet, if_match: str | None, wanted: int) -> Reply:
        self.before_patch(scale_set)
        is_old = if_match is not None and if_match != f'"{scale_set.revision}"'
        if is_old and not self.etags_ignored:
            # As kubernetes-sigs/cloud-provider-azure#9728 has it: 412, and an etag is a number.
            return error(412, "PreconditionFailed", "the etag is old")
        grown = wanted - scale_set.capacity
        here = [vm for vm in self.vms.values() if vm.scale_set == scale_set.name]
        if wanted == 0 and here and self.vms[HEAD].is_off:
            self._set(here, "Deleting")
            names = [vm.name for vm in here]
            scaled_in = Operation(then=lambda: self._remove(scale_set, names))
            return Reply(202, scale_set.body(), self.watched(scaled_in))
        # dataplat/dbatools#10540: as many go as the capacity sinks, also where it is above the VMs.
        for victim in here[: max(0, -grown)]:
            self.billed.end(victim.name)
            self.vms.pop(victim.name)
        refusal = self.refusals.get(scale_set.name, [])
        if grown > 0 and refusal and refusal[0][0] != 202:
            return error(*refusal.pop(0))
        if grown > 0 and (lacks := self.lacks(*self.uses, linked=f"{SCALE_SETS}/{scale_set.name}")):
            return lacks
        scale_set.capacity = wanted
        scale_set.revision += 1
        creates = (
            (f"{COMPUTE}/virtualMachines/write", VIRTUAL_MACHINES),
            (f"{NETWORK}/networkInterfaces/write", NICS),
            (f"{NETWORK}/networkInterfaces/join/action", NICS),
            (f"{COMPUTE}/disks/write", DISKS),
        )
        lacks = self.lacks(*creates) if grown > 0 else None
        made = [] if lacks else [self._begin(scale_set) for _ in range(grown)]
        operation = Operation(polls=self.launch_polls, then=lambda: self._boot(made))
        if lacks:
            operation = Operation(lacks.body["error"])
        elif grown > 0 and refusal:
            _, code, message = refusal.pop(0)
            came, failed = made[: self.granted], made[self.granted :]

            def grant_in_part() -> None:
                self._set(failed, "Failed")
                self._boot(came)

            operation = Operation({"code": code, "message": message}, then=grant_in_part)
        return Reply(202, scale_set.body(), self.watched(operation))

    def _begin(self, scale_set: ScaleSet) -> Vm:
        name = f"{scale_set.name}_{next(self.serial):08x}"
        vm = Vm(name, scale_set.name, model=scale_set.model)
        self.vms[vm.name] = vm
        self.billed.begin(vm.name)
        return vm

    def _set(self, vms: list[Vm], state: str) -> None:
        for vm in vms:
            vm.state = state

    def _boot(self, vms: list[Vm]) -> None:
        self._set(vms, "Succeeded")
        for vm in vms:
            self.on_boot(vm)

    def watched(self, operation: Operation) -> dict[str, str]:
        """The headers of an answer whose operation goes on, with a status."""
        identifier = f"{OPERATIONS}/operations/{next(self.serial)}"
        self.operations[identifier] = operation
        address = f"{self.url}{identifier}?api-version=2024-11-01"
        return {"Azure-AsyncOperation": address} | RETRY_AFTER

    def _delete(self, scale_set: ScaleSet, names: list[str]) -> Reply:
        unknown = [name for name in names if name not in self.vms]
        if unknown:
            return error(400, "InvalidParameter", f"{unknown} are not instances")
        deletes = (
            (f"{COMPUTE}/virtualMachines/delete", VIRTUAL_MACHINES),
            (f"{NETWORK}/networkInterfaces/delete", NICS),
            (f"{COMPUTE}/disks/delete", DISKS),
        )
        lost = bool(self.lacks(*deletes)) or not self.lost_deletions.isdisjoint(names)
        self.lost_deletions.difference_update(names)
        for name in names:
            assert self.vms[name].scale_set == scale_set.name
            self.vms[name].state = "Succeeded" if lost else "Deleting"
            if not lost:
                self.billed.end(name)
        identifier = f"{OPERATIONS}/results/{next(self.serial)}"
        self.operations[identifier] = Operation()
        # A deletion goes on whether or not the client asks how far it is.
        if not lost:
            threading.Timer(DELETION_S, self._remove, [scale_set, names]).start()
        return Reply(202, None, {"Location": f"{self.url}{identifier}"} | RETRY_AFTER)

    def evict(self, vm: Vm) -> None:
        """Takes a machine away, as an eviction does whose policy is to delete."""
        assert vm.scale_set is not None
        self._remove(self.sets[vm.scale_set], [vm.name])

    def _remove(self, scale_set: ScaleSet, names: list[str]) -> None:
        for name in names:
            self.billed.end(name)
            self.on_delete(name)
        with self.lock:
            for name in names:
                if self.vms.pop(name, None):
                    scale_set.capacity -= 1
            scale_set.revision += 1

    def _operation(self, identifier: str) -> Reply:
        self.on_poll()
        operation = self.operations[identifier]
        is_status = "/operations/" in identifier
        if operation.polls > 0:
            operation.polls -= 1
            going_on = Reply(200, {"status": "InProgress"}, RETRY_AFTER)
            return going_on if is_status else Reply(202)
        operation.then()
        if not is_status:
            return Reply(200)
        if operation.error is not None:
            return Reply(200, {"status": operation.status, "error": operation.error})
        return Reply(200, {"status": "Succeeded"})


@contextmanager
def serving() -> Iterator[Arm]:
    """A resource group with a head and no scale set, served until the block ends."""
    arm = Arm()
    arm.vms[HEAD] = Vm(HEAD, None, "Succeeded")
    with http_service.serving(arm.answer) as arm.url:
        yield arm
