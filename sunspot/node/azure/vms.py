"""What the machines of a cluster are in Azure: their scale sets, and the VMs that ARM lists."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from sunspot.node.machines import AtMaximumError

log = logging.getLogger(__name__)


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
        minimums: the least ones, of the node types that have some.
        twins: the on-demand node types by their spot types: both together are one group.
    """

    subscription_id: str
    resource_group: str
    head: str
    head_type: str
    scale_sets: Mapping[str, str]
    maximums: Mapping[str, int] = field(default_factory=dict)
    minimums: Mapping[str, int] = field(default_factory=dict)
    twins: Mapping[str, str] = field(default_factory=dict)

    def group(self, node_type: str) -> str:
        """The group of a node type: its spot type, where it is an on-demand twin."""
        return {twin: spot for spot, twin in self.twins.items()}.get(node_type, node_type)

    def other_set(self, node_type: str) -> str | None:
        """The scale set of the other market of a node type's group; None without one."""
        other = self.twins.get(node_type) or self.group(node_type)
        return self.scale_sets.get(other) if other != node_type else None

    def maximum(self, node_type: str, others: int) -> int | None:
        """The most machines of a node type beside those of its group's other market.

        The two have the group's maximum between them. But its minimum may come back from spot while
        the on-demand machines that have replaced it are still there.

        Args:
            node_type: the node type.
            others: how many machines the other market has, or is about to have.
        """
        most = self.maximums.get(node_type)
        if most is None:
            return None
        least = self.minimums.get(node_type, 0) if node_type in self.twins else 0
        return max(most - others, min(least, most))


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


def allowed(scale_set: str, capacity: int, count: int, maximum: int | None) -> int:
    """How many of `count` machines more the maximum allows; AtMaximumError if none."""
    more = count if maximum is None else min(count, maximum - capacity)
    if more <= 0:
        raise AtMaximumError(f"{scale_set}: has its maximum of {maximum} machines")
    if more < count:
        log.warning("%s: %d more would be over its maximum of %d", scale_set, count, maximum)
    return more


def capacity_of(scale_set: Mapping[str, Any]) -> int:
    """How many VMs a scale set is to have, as ARM has it."""
    return int(scale_set["sku"].get("capacity") or 0)
