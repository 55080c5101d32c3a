"""What a resource group of the stand-in for ARM has: scale sets, their VMs, operations."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from azure_model.resource_ids import group_id

GROUP = "sunspot-test1a2b3c4d"
VIRTUAL_MACHINES = f"{group_id(GROUP)}/providers/Microsoft.Compute/virtualMachines"


FIRST_MODEL = "first"


@dataclass
class ScaleSet:
    """A scale set. `model` is what its new VMs are made from.

    Those that are there keep the one that they were made from (Microsoft, "Modify a Virtual Machine
    Scale Set": the configuration applies to new VMs, and others must be brought up to date).
    """

    name: str
    capacity: int = 0
    revision: int = 1
    state: str = "Succeeded"
    model: str = FIRST_MODEL

    def body(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "etag": f'"{self.revision}"',
            "sku": {"name": "Standard_D4s_v5", "tier": "Standard", "capacity": self.capacity},
            "properties": {"orchestrationMode": "Flexible", "provisioningState": self.state},
        }


@dataclass
class Vm:
    """A VM. `user_data` is base64, as Azure takes and tells it; `model` is what it is made from."""

    name: str
    scale_set: str | None
    state: str = "Creating"
    console: str = ""  # the log of its serial console
    power: str = "running"
    user_data: str = ""
    revision: int = 1
    model: str = FIRST_MODEL

    @property
    def is_off(self) -> bool:
        """Whether it runs no autoscaler, which would grow its sets again."""
        return self.state == "Stopped" or self.power != "running"

    def body(self, *, with_user_data: bool) -> dict[str, Any]:
        """What Get answers: user data only with $expand=userData (azure-rest-api-specs#13220)."""
        told = {"userData": self.user_data} if with_user_data else {}
        properties = {"provisioningState": self.state, **told}
        return {"name": self.name, "etag": f'"{self.revision}"', "properties": properties}

    def change(self, properties: dict[str, Any]) -> None:
        """Takes a PUT or a PATCH: both leave what they lack, or have as null, as it is.

        Source: Microsoft's "PUT calls for creation or updates on compute resources". An empty text
        removes user data (Azure/azure-cli#17223).
        """
        given = properties.get("userData")
        self.user_data = self.user_data if given is None else given
        self.revision += 1


@dataclass
class Billed:
    """The time of a machine, from its launch to its deletion or eviction, in unix seconds."""

    begun: float
    listed: float | None = None  # when it was first in a list
    ended: float | None = None
    unlisted: float | None = None  # when it first was in a list no more


class Bills(dict[str, Billed]):
    """The machines that ever were, by their names."""

    def begin(self, name: str) -> None:
        """A machine was begun."""
        self[name] = Billed(begun=time.time())

    def end(self, name: str) -> None:
        """A machine is being deleted, or was evicted; one that never was is left out."""
        if machine := self.get(name):
            machine.ended = machine.ended or time.time()

    def see(self, names: set[str]) -> None:
        """A list has these machines; its pages are asked for at once."""
        now = time.time()
        for name, machine in self.items():
            if name in names:
                machine.listed = machine.listed or now
            elif machine.listed:
                machine.unlisted = machine.unlisted or now


@dataclass
class Operation:
    """Answers `polls` times that it is going on; then `error` tells how it ended."""

    error: dict[str, Any] | None = None
    polls: int = 1
    status: str = "Failed"
    then: Callable[[], None] = lambda: None
