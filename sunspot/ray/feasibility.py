"""Whether a job can ever run: what it requests, against what the cluster has or may add."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from sunspot.errors import UsageError
from sunspot.ray import resources as node_resources
from sunspot.ray.resources import GIB
from sunspot.spec_values import HEAD
from sunspot.stack import Stack

NODE_POLL_S = 1.0


@dataclass(frozen=True, kw_only=True)
class Request:
    """What a job's driver itself needs on its node. `memory_gb` is GiB; None requests nothing.

    A driver that requests nothing runs on the head.
    """

    num_cpus: float | None = None
    num_gpus: float | None = None
    memory_gb: float | None = None
    resources: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, amount in self.amounts().items():
            if not math.isfinite(amount) or amount < 0:
                raise UsageError(f"a job cannot ask for {name}: {amount:g}; give 0 or more")

    def amounts(self) -> dict[str, float]:
        """Ray resource name -> amount, memory in bytes."""
        named = {
            "CPU": self.num_cpus,
            "GPU": self.num_gpus,
            "memory": None if self.memory_gb is None else self.memory_gb * GIB,
        }
        return {name: n for name, n in named.items() if n is not None} | dict(self.resources)


@dataclass(frozen=True, kw_only=True)
class NodeType:
    """A kind of node that a cluster has or may add.

    Attributes:
        name: what messages call it.
        resources: what Ray counts on one.
        most: how many of them the cluster may have.
        groups: the labels that Ray's nodes of it have as their group.
    """

    name: str
    resources: Mapping[str, float]
    most: int = 1
    groups: tuple[str, ...] = ()


def node_types(stack: Stack) -> list[NodeType]:
    """The node types that the stack's cluster may have."""
    cluster = stack.cluster
    head = NodeType(
        name="head", resources=node_resources.of(cluster.head_node).amounts(), groups=(HEAD,)
    )
    groups = [
        NodeType(
            name=f"group {group.name!r}",
            resources=node_resources.of(group.worker_nodes).amounts(),
            most=group.max_workers,
            groups=tuple(group.node_types()),
        )
        for group in cluster.scaling_groups
    ]
    return [head, *groups]


def check_feasible(request: Request, types: Iterable[NodeType], *, may_wait: bool = True) -> None:
    """Refuses a request that no node that the cluster has or may add can ever hold.

    Args:
        request: what the job asks for.
        types: the cluster's node types.
        may_wait: whether the command can wait for other nodes, with --wait.

    Raises:
        UsageError: the message names the resource, the amount and the nearest node type.
    """
    amounts, types = request.amounts(), list(types)
    if can_hold(amounts, types):
        return
    fixes = "Ask for less, or give a group larger nodes"
    if may_wait:
        fixes += ", or wait for a larger node to join with --wait"
    raise UsageError(
        f"no node of this cluster can ever hold this job. {missing(amounts, types)}. {fixes}"
    )


def missing(amounts: Mapping[str, float], types: Sequence[NodeType]) -> str:
    """What the nearest of these node types lacks of the amounts, which none of them holds."""
    short = {t.name: _shortage(amounts, t.resources) for t in types}
    nearest = min(types, key=lambda t: _distance(amounts, t, short[t.name]))
    return "; ".join(
        f"{name}: asked {amount(name, amounts[name])}, the nearest node type ({nearest.name}) has "
        f"{amount(name, nearest.resources.get(name, 0))}, the largest any has is "
        f"{amount(name, max(t.resources.get(name, 0) for t in types))}"
        for name in short[nearest.name]
    )


def wait_for_node(
    request: Request,
    types: Iterable[NodeType],
    live_nodes: Callable[[], list[NodeType]],
    note: Callable[[str], None],
) -> None:
    """Returns once some node type, or a node that is there, can hold the request.

    If it were submitted earlier, Ray would fail the job at once (ray/start.py, early exit).
    """
    types = list(types)
    while not can_hold(request.amounts(), [*types, *live_nodes()]):
        note("waiting for a node that can hold the job (Ctrl-C stops the wait)")
        note = _silent
        time.sleep(NODE_POLL_S)


def _silent(_text: str) -> None:
    """Prints nothing: the note has been printed once."""


def can_hold(amounts: Mapping[str, float], types: Iterable[NodeType]) -> bool:
    """True if a node of one of the types has these amounts."""
    return any(not _shortage(amounts, node_type.resources) for node_type in types)


def _shortage(amounts: Mapping[str, float], resources: Mapping[str, float]) -> list[str]:
    return [name for name, amount in amounts.items() if amount > resources.get(name, 0)]


def _distance(
    amounts: Mapping[str, float], node_type: NodeType, short: Sequence[str]
) -> tuple[float, ...]:
    """How far a node type is from the request: number of shortages, their shares, its CPUs."""
    has = node_type.resources
    missing = sum(1 - has.get(name, 0) / amounts[name] for name in short)
    return (len(short), missing, -has.get("CPU", 0))


def amount(name: str, number: float) -> str:
    """An amount of a resource as people write it: memory in GiB."""
    return f"{number / GIB:g} GiB" if name == "memory" else f"{number:g}"
