"""What the machines of a cluster are in Azure: their scale sets, and the VMs that ARM lists."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """Where a cluster's machines are in Azure.

    Attributes:
        subscription_id: the subscription.
        resource_group: the resource group's name.
        head: the name of the head's VM.
        head_type: the head's Ray node type.
        scale_sets: the names of the scale sets by Ray node type.
        maximums: the most machines of a node type; of one that is not in it, Ray alone decides.
    """

    subscription_id: str
    resource_group: str
    head: str
    head_type: str
    scale_sets: Mapping[str, str]
    maximums: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Vm:
    """A VM of a scale set; `state` is its provisioningState in lower case."""

    name: str
    scale_set: str
    state: str


def vm_of(item: Mapping[str, Any]) -> Vm:
    """A VM of ARM's list; its scale set is "" where it has none."""
    properties = item.get("properties") or {}
    scale_set = (properties.get("virtualMachineScaleSet") or {}).get("id") or ""
    return Vm(
        name=item["name"],
        scale_set=scale_set.rpartition("/")[2],
        state=str(properties.get("provisioningState", "")).lower(),
    )


def capacity_of(scale_set: Mapping[str, Any]) -> int:
    """How many VMs a scale set is to have, as ARM has it."""
    return int(scale_set["sku"].get("capacity") or 0)
