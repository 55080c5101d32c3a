"""Scaling the sets of a stack to zero before it is destroyed.

A Flexible set's deletion may end before its machines' NICs are gone, which then hold their subnet
(InUseSubnetCannotBeDeleted); Terraform's provider scales such a set to zero first, for that reason
(azurerm_orchestrated_virtual_machine_scale_set).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from sunspot.errors import SunspotError
from sunspot.targets.azure import missing_role
from sunspot.targets.azure.credentials import Endpoints, Login
from sunspot.targets.protocol import Lasting, Progress

if TYPE_CHECKING:
    from sunspot.node.azure.arm import Answer, Arm
    from sunspot.targets.azure.automation import StackState

SCALE_SET_TYPE = "azure-native:compute:VirtualMachineScaleSet"
COMPUTE_VERSION = "2024-11-01"
# Each operation; Azure usually deletes a machine within two minutes.
TIMEOUT_S = 600.0
# ARM's patience with one request; where it does not answer, destroying goes on without this.
PATIENCE_S = 30.0

GONE = 404


def empty(state: StackState, progress: Progress, endpoints: Endpoints | None = None) -> None:
    """Scales every set of a stack to zero, with the head stopped, which would grow them again.

    Where that fails, it says so and returns: destroying may still succeed.
    """
    sets = [one.id for one in state.resources if one.type == SCALE_SET_TYPE]
    if not sets:
        return
    from sunspot.node.azure.arm import Arm, ArmError

    endpoints = endpoints or Endpoints()
    _, _, subscription, *_ = sets[0].split("/")
    login = Login(endpoints, subscription=subscription)
    try:
        arm = Arm(login, endpoints.management, patience_s=PATIENCE_S)
        _empty(arm, None if state.head is None else state.head.id, sets, progress)
    except (SunspotError, ArmError, LookupError, TypeError) as error:  # or an answer in no shape
        reason = missing_role.explained(str(error))
        progress(
            Lasting(
                f"could not scale the workers to zero first ({reason}); destroying all the same"
            )
        )


def to_go_on(name: str, state: StackState) -> str:
    """What to do where taking the stack `name` down ended before its time."""
    advice = f"What is left is billed. Continue: sunspot down {name}"
    if state.head is None:
        return advice
    # Pulumi's state still has the workers' numbers of before, and does not start a machine.
    return (
        f"{advice} · or keep the cluster, whose head may be stopped and workers deleted: "
        f"az vm start --ids {state.head.id}, then: pulumi up --refresh --stack {name}"
    )


def _empty(arm: Arm, head: str | None, sets: Sequence[str], progress: Progress) -> None:
    capacities = {one: _sku(arm, one) for one in sets}
    full = {one: sku for one, sku in capacities.items() if sku.get("capacity")}
    if not full:
        return
    if head is not None:
        progress("stopping the head, which would replace workers")
        _stop(arm, head)
    progress("scaling the workers to zero")
    begun = [
        arm.send("PATCH", one, COMPUTE_VERSION, {"sku": {**sku, "capacity": 0}})
        for one, sku in full.items()
    ]
    for answer in begun:
        _wait(arm, answer)


def _sku(arm: Arm, scale_set: str) -> dict[str, Any]:
    """Its size and capacity; empty if somebody has deleted it."""
    from sunspot.node.azure.arm import ArmError

    try:
        return arm.get(scale_set, COMPUTE_VERSION).body["sku"]
    except ArmError as error:
        if error.status == GONE:
            return {}
        raise


def _stop(arm: Arm, head: str) -> None:
    """Stops the head, unless somebody has deleted it."""
    from sunspot.node.azure.arm import ArmError

    # Its memory is lost with it anyway, so it need not shut down in order.
    path = f"{head}/powerOff?skipShutdown=true"
    try:
        _wait(arm, arm.send("POST", path, COMPUTE_VERSION, None))
    except ArmError as error:
        if error.status != GONE:
            raise


def _wait(arm: Arm, answer: Answer) -> None:
    if not arm.wait(answer, TIMEOUT_S):
        raise SunspotError(f"Azure needs more than {TIMEOUT_S:.0f} s")
