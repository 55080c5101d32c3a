"""The groups of a cluster beside what they may have: at least, now by market, and at most."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from sunspot.spec_values import HEAD
from sunspot.stack import Stack
from sunspot.targets.protocol import NodeStatus
from sunspot.targets.scaling import Size


@dataclass(frozen=True, kw_only=True)
class GroupStatus:
    """One group of workers.

    Attributes:
        name: the group's name.
        minimum: the least workers that it is kept at.
        maximum: the most.
        now: how many are members, by market; those that drain are members still.
        starting: how many were requested and are not members yet.
    """

    name: str
    minimum: int
    maximum: int
    now: Mapping[str, int]
    starting: int = 0

    def __str__(self) -> str:
        """As people read it: `gpu 0/3/8: 2 spot, 1 on-demand, 1 starting`."""
        parts = [f"{count} {market}" for market, count in self.now.items()]
        parts += [f"{self.starting} starting"] if self.starting else []
        count = f"{self.minimum}/{sum(self.now.values())}/{self.maximum}"
        return f"{self.name} {count}" + (f": {', '.join(parts)}" if parts else "")


def of(stack: Stack, sizes: Mapping[str, Size], nodes: Iterable[NodeStatus]) -> list[GroupStatus]:
    """The groups of a cluster, in the stack's order.

    Args:
        stack: the stack as it was when the cluster was brought up.
        sizes: the size at which a group is kept, where that is not the stack's.
        nodes: the nodes that there are.
    """
    here = [node for node in nodes if node.state != "lost" and not node.is_head]
    found = []
    for group in stack.cluster.scaling_groups:
        of_group = [node for node in here if node.group in group.node_types()]
        now = Counter(node.market for node in of_group if node.state != "starting")
        size = sizes.get(group.name)
        found.append(
            GroupStatus(
                name=group.name,
                minimum=group.min_workers if size is None else size.minimum,
                maximum=group.max_workers if size is None else size.highest,
                now=dict(sorted(now.items(), reverse=True)),  # spot first
                starting=sum(node.state == "starting" for node in of_group),
            )
        )
    return found


def markets(stack: Stack) -> dict[str, str]:
    """The market of each of a stack's node types, the head's among them."""
    found = {HEAD: "on-demand"}
    for group in stack.cluster.scaling_groups:
        own, *twin = group.node_types()
        found[own] = "on-demand" if group.market == "on-demand" else "spot"
        found |= dict.fromkeys(twin, "on-demand")
    return found
