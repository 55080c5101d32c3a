"""What Ray counts on nodes. An ability of targets that give it less than a whole node."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, runtime_checkable

from sunspot.stack import Stack
from sunspot.targets import abilities

if TYPE_CHECKING:
    from sunspot.ray.feasibility import NodeType
    from sunspot.targets.protocol import Target


@runtime_checkable
class NodeTypes(Protocol):
    """Something else runs beside Ray on its nodes."""

    def node_types(self, stack: Stack) -> list[NodeType]:
        """The node types that the stack's cluster may have, the head first."""
        ...


def of(target: Target, stack: Stack) -> list[NodeType]:
    """The node types that the stack's cluster may have on a target, the head first."""
    from sunspot.ray import feasibility

    special = abilities.find(target, NodeTypes)
    return feasibility.node_types(stack) if special is None else special.node_types(stack)
