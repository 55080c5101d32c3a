"""Which workers of a cluster have an older boot than new ones get.

A worker carries a hash of what it booted from as a label of its Ray node. A machine that is not a
member has none: it is older if it was there before its node type's wanted boot changed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sunspot.errors import SunspotError
from sunspot.node.collector import BOOT_LABEL, GROUP_LABEL
from sunspot.spec import ScalingGroup
from sunspot.stack import Stack
from sunspot.targets.azure import scaling
from sunspot.targets.azure.credentials import Endpoints
from sunspot.targets.members import label

if TYPE_CHECKING:
    from sunspot.ray.handle import ClusterHandle


@dataclass(frozen=True, kw_only=True)
class Before:
    """What a cluster had before Pulumi's engine ran.

    Attributes:
        boots: what its node types were to boot from, by its settings.
        machines: the names of its workers' VMs, in lower case.
        head_goes: whether the engine replaced its head, which workers of the same version of Ray
            find again.
    """

    boots: Mapping[str, str] = field(default_factory=dict)
    machines: frozenset[str] = frozenset()
    head_goes: bool = False

    def outdates(self, kind: str, machine: str, wanted: str) -> bool:
        """Whether a machine is older than the boot that its kind is to have now."""
        return self.boots.get(kind) != wanted and machine.lower() in self.machines


def before(stack: Stack, vm: str, endpoints: Endpoints, *, head_goes: bool = False) -> Before:
    """What the cluster has whose head is this VM; nothing where Azure does not say it.

    Args:
        stack: the stack as it was brought up.
        vm: the ARM id of the head's VM.
        endpoints: the addresses of Azure.
        head_goes: whether the engine will replace the head, and workers can join the new one.
    """
    from sunspot.node.azure.arm import ArmError

    kinds = dict.fromkeys(groups_of(stack), 0)
    try:
        found = scaling.running(vm, endpoints)
        arm = scaling.arm_of(vm, endpoints)
        machines = scaling.machines_of(stack.name, vm, arm, kinds).list()
    except (ArmError, SunspotError):
        # The engine says what is wrong with the login, and writes settings that can be read.
        return Before(head_goes=head_goes)
    names = frozenset(one.id.lower() for one in machines if not one.is_head)
    boots = {} if found is None else found.boots
    return Before(boots=boots, machines=names, head_goes=head_goes)


def outdated(stack: Stack, vm: str, handle: ClusterHandle, endpoints: Endpoints) -> list[str]:
    """How many workers of each node type have an older boot, a line each, and what rolls them."""
    found = scaling.running(vm, endpoints)
    boots = {} if found is None else found.boots
    nodes = scaling.alive(handle)
    lines: list[str] = []
    for kind, wanted in boots.items():
        own = [label(one, BOOT_LABEL) for one in nodes if label(one, GROUP_LABEL) == kind]
        if old := sum(boot != wanted for boot in own):
            lines.append(
                f"{old} of {len(own)} workers of {kind} have an older boot than new ones get; to "
                f"replace them, a quarter of them at a time: sunspot up {stack.name}"
            )
    return lines


def groups_of(stack: Stack) -> dict[str, ScalingGroup]:
    """The group of each node type."""
    groups = stack.cluster.scaling_groups
    return {kind: group for group in groups for kind in group.node_types()}
