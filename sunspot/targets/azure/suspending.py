"""A cluster on Azure whose machines are not billed: its head is deallocated, and has no workers.

Its disks and its addresses stay, so that the head comes back as the same one. Azure's word matters:
a deallocated VM costs nothing, one that is only stopped costs as much as one that runs ("States and
billing status of Azure Virtual Machines").
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sunspot.errors import SunspotError
from sunspot.ray.handle import ClusterHandle
from sunspot.stack import Stack
from sunspot.targets.azure import by_hand, head, missing_role, plan, scaling, ssh_key
from sunspot.targets.azure.credentials import Endpoints, Login
from sunspot.targets.protocol import HourlyCost, Lasting, Progress
from sunspot.targets.suspending import not_suspended, stop_jobs, suspended

if TYPE_CHECKING:
    from sunspot.node.azure.arm import Answer, Arm

COMPUTE_VERSION = "2024-11-01"
# Azure usually takes one to three minutes for each.
TIMEOUT_S = 900.0
# ARM's patience with one request, for which a person waits.
PATIENCE_S = 30.0

# Virtual Machines - Instance View: the statuses of a VM.
POWER = "PowerState/"
OFF = frozenset({"deallocated", "deallocating"})


@dataclass(frozen=True, kw_only=True)
class Machines:
    """The machines of a cluster, as Azure Resource Manager has them.

    Every method raises SunspotError where there is no login, or Azure refuses or does not answer.

    Attributes:
        stack: the stack's name.
        group_id: the ARM id of the cluster's resource group.
        head: the name of the head's VM.
        endpoints: the addresses of Azure.
    """

    stack: str
    group_id: str
    head: str
    endpoints: Endpoints

    def power(self) -> str:
        """The head's power state, such as "running" or "deallocated"; "" where it has none."""
        with self._arm() as arm:
            view = arm.get(f"{self._vm}/instanceView", COMPUTE_VERSION).body
            codes = [str(one.get("code", "")) for one in view.get("statuses") or []]
            return next((c.removeprefix(POWER) for c in codes if c.startswith(POWER)), "")

    def deallocate(self) -> None:
        """Stops the head and gives its hardware back."""
        with self._arm() as arm:
            self._done(arm, arm.send("POST", f"{self._vm}/deallocate", COMPUTE_VERSION, None))

    def start(self) -> None:
        """Starts the head; SunspotError also where Azure has no machine for it now."""
        from sunspot.node.azure import refusals
        from sunspot.node.azure.arm import ArmError

        try:
            with self._arm() as arm:
                try:
                    answer = arm.send("POST", f"{self._vm}/start", COMPUTE_VERSION, None)
                    self._done(arm, answer)
                except ArmError as error:
                    if not refusals.is_refusal(error):
                        raise
                    raise SunspotError(
                        f"Azure has no machine for the head of {self.stack!r} now ({error})"
                    ) from error
        except SunspotError as error:
            error.add_note(
                f"{self.stack} is suspended, as before: try again later: sunspot start {self.stack}"
            )
            raise

    def capacities(self) -> dict[str, int]:
        """How many machines each scale set is to have, by its name."""
        with self._arm() as arm:
            return {name: int(sku.get("capacity") or 0) for name, sku in self._skus(arm).items()}

    def resize(self, wanted: Mapping[str, int], progress: Progress) -> None:
        """Gives scale sets these capacities, where they have others; the sets change at once."""
        with self._arm() as arm:
            begun: list[Answer] = []
            for name, sku in self._skus(arm).items():
                if name not in wanted or int(sku.get("capacity") or 0) == wanted[name]:
                    continue
                progress(f"scaling {name} to {wanted[name]}")
                path, body = f"{self._sets}/{name}", {"sku": {**sku, "capacity": wanted[name]}}
                begun.append(arm.send("PATCH", path, COMPUTE_VERSION, body))
            for answer in begun:
                self._done(arm, answer)

    @property
    def _vm(self) -> str:
        return f"{self.group_id}/providers/Microsoft.Compute/virtualMachines/{self.head}"

    @property
    def _sets(self) -> str:
        return f"{self.group_id}/providers/Microsoft.Compute/virtualMachineScaleSets"

    def _skus(self, arm: Arm) -> dict[str, dict[str, Any]]:
        pages = arm.pages(self._sets, COMPUTE_VERSION)
        return {item["name"]: item["sku"] for page in pages for item in page}

    def _done(self, arm: Arm, answer: Answer) -> None:
        if not arm.wait(answer, TIMEOUT_S):
            raise SunspotError(f"Azure needs more than {TIMEOUT_S:.0f} s")

    @contextmanager
    def _arm(self) -> Iterator[Arm]:
        from sunspot.node.azure.arm import Arm, ArmError

        _, _, subscription, *_ = self.group_id.split("/")
        login = Login(self.endpoints, subscription=subscription)
        try:
            yield Arm(login, self.endpoints.management, patience_s=PATIENCE_S)
        except ArmError as error:
            raise SunspotError(missing_role.explained(str(error))) from error
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            raise SunspotError(f"Azure's answer is in no shape that it has ({error!r})") from error


def is_suspended(machines: Machines) -> bool:
    """Whether the head is deallocated; also where `sunspot:idle` did that, or somebody by hand."""
    return machines.power() in OFF


def suspend(machines: Machines, connect: Callable[[], ClusterHandle], progress: Progress) -> None:
    """Stops the jobs, then the head, then the workers. One that was interrupted goes on.

    The head goes before the workers: while it is there, its autoscaler replaces them.

    Raises:
        SuspendedError: there is nothing left to do.
        SunspotError: Azure refused, or did not answer.
    """
    try:
        if not is_suspended(machines):
            _stop_jobs(connect, progress)
            progress("stopping the head; its disks and its address stay (some two minutes)")
            machines.deallocate()
        elif not any(machines.capacities().values()):
            raise suspended(machines.stack)
        progress("deleting the workers")
        machines.resize(dict.fromkeys(machines.capacities(), 0), progress)
    except KeyboardInterrupt as interrupt:
        interrupt.add_note(_to_go_on(machines.stack))
        raise
    except SunspotError as error:
        if error.exit_code == 1:
            error.add_note(_to_go_on(machines.stack))
        raise


def start(machines: Machines, fixed: Mapping[str, int], progress: Progress) -> None:
    """Starts the head, and the workers of fixed groups; the autoscaler starts the others.

    Args:
        machines: the machines of a suspended cluster.
        fixed: how many machines each scale set gets whose size the stack file sets.
        progress: called with each step.

    Raises:
        UsageError: the cluster is not suspended.
        SunspotError: Azure refused, or did not answer.
    """
    power = machines.power()
    if power == "deallocating":
        raise SunspotError(
            f"{machines.stack!r} is still being suspended: try again in a minute: sunspot start "
            f"{machines.stack}"
        )
    if power in {"running", "starting"}:
        raise not_suspended(machines.stack)
    progress("starting the head (a minute or two)")
    try:
        machines.start()
    except KeyboardInterrupt as interrupt:
        interrupt.add_note(_runs(machines.stack))  # Azure goes on
        raise
    progress("the head runs, and boots")
    machines.resize(fixed, progress)


def fixed_sizes(stack: Stack, folder: Path, machines: Machines) -> dict[str, int]:
    """How many machines each scale set gets that the autoscaler does not have, by its name.

    Args:
        stack: the stack.
        folder: the project's folder.
        machines: the machines, whose head knows what groups were given by hand.

    Raises:
        UsageError: the stack cannot be planned.
        SunspotError: there is no login, or Azure does not answer.
    """
    found = plan.plan(ssh_key.with_some_key(stack), folder)
    fixed = [pool for pool in found.pools if not pool.elastic]
    if not fixed:
        return {}
    running = scaling.running(head.vm_of(machines.group_id, machines.head), machines.endpoints)
    groups = {group.name: group for group in stack.cluster.scaling_groups}
    return {pool.scale_set: by_hand.count(groups[pool.group], running) for pool in fixed}


@contextmanager
def noting_that_it_may_run(stack: str) -> Iterator[None]:
    """Adds to what ends a `start` early that the head is billed by then."""
    try:
        yield
    except (KeyboardInterrupt, SunspotError) as error:
        error.add_note(_runs(stack))
        raise


def still_billed(cost: HourlyCost | None) -> str:
    """What a suspended cluster costs."""
    about = "" if cost is None else f", about {cost.others:.3f} USD an hour"
    return (
        f"still billed until `sunspot down`{about}: disks, addresses, the NAT gateway and the rest"
    )


def _stop_jobs(connect: Callable[[], ClusterHandle], progress: Progress) -> None:
    """Stops the jobs; a head that cannot be reached is stopped all the same."""
    try:
        stop_jobs(connect(), progress)
    except SunspotError as error:
        progress(Lasting(f"the jobs could not be stopped first: {error}"))


def _runs(stack: str) -> str:
    return (
        f"the head of {stack} runs, and is billed: sunspot status {stack} · stop it again: "
        f"sunspot suspend {stack}"
    )


def _to_go_on(stack: str) -> str:
    return f"what is not stopped yet is billed. Continue: sunspot suspend {stack}"
