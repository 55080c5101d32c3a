"""What a resource group of the stand-in for ARM has: scale sets, their VMs, operations."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass
class ScaleSet:
    name: str
    capacity: int = 0
    revision: int = 1
    state: str = "Succeeded"

    def body(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "etag": f'"{self.revision}"',
            "sku": {"name": "Standard_D4s_v5", "tier": "Standard", "capacity": self.capacity},
            "properties": {"orchestrationMode": "Flexible", "provisioningState": self.state},
        }


@dataclass
class Vm:
    name: str
    scale_set: str | None
    state: str = "Creating"
    console: str = ""  # the log of its serial console
    power: str = "running"

    @property
    def is_off(self) -> bool:
        """Whether it runs no autoscaler, which would grow its sets again."""
        return self.state == "Stopped" or self.power != "running"


@dataclass
class Operation:
    """Answers `polls` times that it is going on; then `error` tells how it ended."""

    error: dict[str, Any] | None = None
    polls: int = 1
    status: str = "Failed"
    then: Callable[[], None] = lambda: None
