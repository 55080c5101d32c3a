"""The power states of a VM, as Azure Resource Manager changes and tells them.

Sources: Microsoft's REST reference, Virtual Machines - Instance View, - Deallocate and - Start (202
with an operation); "States and billing status of Azure Virtual Machines".
"""

from __future__ import annotations

from typing import Any

from azure_model.compute import Operation, Vm

# What each needs.
ACTIONS = {
    "instanceView": "instanceView/read",
    "deallocate": "deallocate/action",
    "start": "start/action",
}


def view(vm: Vm) -> dict[str, Any]:
    """A VM's instance view, as far as it is asked for."""
    codes = [f"ProvisioningState/{vm.state.lower()}", f"PowerState/{vm.power}"]
    return {"statuses": [{"code": code, "level": "Info"} for code in codes]}


def begin(vm: Vm, action: str, refusals: list[tuple[int, str, str]]) -> Operation:
    """Deallocates or starts a VM; one whose start is refused stays deallocated.

    An allocation failure ends the operation ("Troubleshoot allocation failures when you create,
    restart, or resize VMs in Azure").
    """
    if action == "start" and refusals:
        _, code, message = refusals.pop(0)
        return Operation({"code": code, "message": message})
    states = {"deallocate": ("deallocating", "deallocated"), "start": ("starting", "running")}
    vm.power, after = states[action]
    return Operation(then=lambda: setattr(vm, "power", after))
