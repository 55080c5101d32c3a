"""Whether a job can ever run: what it requests, against what the cluster has or may add."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from sunspot.errors import UsageError
from sunspot.ray import resources as node_resources
from sunspot.ray.resources import GIB
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
    """A kind of node that a cluster has or may add; `resources` as Ray counts them."""

    name: str
    resources: Mapping[str, float]


def node_types(stack: Stack) -> list[NodeType]:
    """The node types that the stack's cluster may have."""
    cluster = stack.cluster
    head = NodeType(name="head", resources=node_resources.of(cluster.head_node).amounts())
    groups = [
        NodeType(
            name=f"group {group.name!r}", resources=node_resources.of(group.worker_nodes).amounts()
        )
        for group in cluster.scaling_groups
    ]
    return [head, *groups]


def check_feasible(request: Request, types: Iterable[NodeType]) -> None:
    """Refuses a request that no node that the cluster has or may add can ever hold.

    Raises:
        UsageError: the message names the resource, the amount and the nearest node type.
    """
    amounts, types = request.amounts(), list(types)
    if can_hold(request, types):
        return
    short = {t.name: _shortage(amounts, t.resources) for t in types}
    nearest = min(types, key=lambda t: _distance(amounts, t, short[t.name]))
    missing = "; ".join(
        f"{name}: asked {_amount(name, amounts[name])}, the nearest node type ({nearest.name}) has "
        f"{_amount(name, nearest.resources.get(name, 0))}, the largest any has is "
        f"{_amount(name, max(t.resources.get(name, 0) for t in types))}"
        for name in short[nearest.name]
    )
    raise UsageError(
        f"no node of this cluster can ever hold this job. {missing}. Ask for less, give a group "
        f"larger nodes, or wait for a larger node to join with --wait"
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
    while not can_hold(request, [*types, *live_nodes()]):
        note("waiting for a node that can hold the job (Ctrl-C stops the wait)")
        note = _silent
        time.sleep(NODE_POLL_S)


def _silent(_text: str) -> None:
    """Prints nothing: the note has been printed once."""


def can_hold(request: Request, types: Iterable[NodeType]) -> bool:
    """True if one of the types has all that is requested."""
    amounts = request.amounts()
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


def _amount(name: str, amount: float) -> str:
    return f"{amount / GIB:g} GiB" if name == "memory" else f"{amount:g}"
