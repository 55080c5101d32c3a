"""What tasks, actors and placement groups of running jobs wait for, and whether it can ever come.

Ray fails a task or an actor that no node type can hold (ray/start.py, early exit). A placement
group of that kind, as Train and Tune make them, waits for ever and says nothing.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from sunspot.node.collector import GROUP_LABEL
from sunspot.ray.feasibility import NodeType, amount, can_hold, missing
from sunspot.spec_values import HEAD

if TYPE_CHECKING:
    from sunspot.ray.jobs import JobClient

Kind = Literal["task", "actor", "placement group"]

# More of one kind are not read: they wait for the same.
LIMIT = 200
TIMEOUT_S = 5.0

# Ray's kind of list -> (the field of the job's id, the states in which an entry waits for a node,
# what it is); ray/util/state/common.py, 2.60.
_WAITING: tuple[tuple[str, str, tuple[str, ...], Kind], ...] = (
    ("tasks", "job_id", ("PENDING_NODE_ASSIGNMENT",), "task"),
    ("actors", "job_id", ("PENDING_CREATION",), "actor"),
    ("placement_groups", "creator_job_id", ("PENDING", "RESCHEDULING"), "placement group"),
)

REMEDY = (
    "Ask for less, or give the stack larger nodes or more of them (sunspot:cluster in its file, "
    "then down and up)"
)

# What Ray calls the resources of a placement group's bundles, and a node's own resource: who asks
# for these waits for a certain node, not for room. How much object store a node has, no stack says.
_NOT_ROOM = re.compile(r".*_group_(\d+_)?[0-9a-f]{36}|node:.*|object_store_memory")

# An amount in use and a whole one in the dashboard's summary, "1.0/2.0 CPU"; memory has units.
_USE = re.compile(r"([\d.]+)/([\d.]+) (\S+)")


@dataclass(frozen=True, kw_only=True)
class Waiting:
    """Entries of one job that wait for the same.

    Attributes:
        kind: what they are.
        name: the function, class or placement group; "" if it has no name.
        job: Ray's id of the job.
        bundles: what one of them asks for: Ray's names of resources -> amounts, memory in bytes. A
            task or an actor has one bundle.
        count: how many of them are known to wait.
        is_more: whether there may be more, which were not read.
    """

    kind: Kind
    name: str
    job: str
    bundles: tuple[Mapping[str, float], ...]
    count: int = 1
    is_more: bool = False

    def __str__(self) -> str:
        name = f" {self.name!r}" if self.name else ""
        count = f"{self.count} or more" if self.is_more else f"{self.count}"
        many = f"{count} {self.kind}s" if self.count > 1 else f"{_article(self.kind)}"
        return f"{many}{name} of {shape(self.bundles)}"


def waiting(client: JobClient, job: str | None = None) -> list[Waiting]:
    """What waits for a node in one job (Ray's id of it), or in all; the most numerous first.

    Raises:
        SunspotError: the cluster does not answer.
    """
    found: Counter[tuple[Kind, str, str, tuple[tuple[tuple[str, float], ...], ...]]] = Counter()
    cut: set[Kind] = set()
    for kind, job_field, states, what in _WAITING:
        for state in states:
            filters = {"state": state} | ({job_field: job} if job else {})
            entries = client.state(kind, limit=LIMIT, timeout=TIMEOUT_S, **filters)
            cut |= {what} if len(entries) >= LIMIT else set()
            for entry in entries:
                bundles = _bundles(entry)
                if _waits_for_room(entry, bundles):
                    name = entry.get("name") or entry.get("class_name") or ""
                    keys = tuple(tuple(sorted(bundle.items())) for bundle in bundles)
                    found[what, name, entry[job_field], keys] += 1
    return [
        Waiting(
            kind=kind,
            name=name,
            job=of,
            bundles=tuple(map(dict, keys)),
            count=count,
            is_more=kind in cut,
        )
        for (kind, name, of, keys), count in found.most_common()
    ]


def _bundles(entry: Mapping[str, Any]) -> list[dict[str, float]]:
    if "bundles" in entry:
        return [dict(bundle["unit_resources"]) for bundle in entry["bundles"] or ()]
    return [dict(entry.get("required_resources") or {})]


def _waits_for_room(entry: Mapping[str, Any], bundles: Sequence[Mapping[str, float]]) -> bool:
    """Not so an actor that has its node and starts there, and an actor's own tasks."""
    is_actors = entry.get("type") not in (None, "NORMAL_TASK")
    has_node = "class_name" in entry and bool((entry.get("node_id") or "").strip("f"))
    names = {name for bundle in bundles for name in bundle}
    return bool(names) and not (is_actors or has_node or any(map(_NOT_ROOM.fullmatch, names)))


def cluster_types(
    declared: Iterable[NodeType], nodes: Iterable[Mapping[str, Any]]
) -> list[NodeType]:
    """All nodes that a cluster may have: the stack's, and those that were added by hand.

    Args:
        declared: the stack's node types.
        nodes: the nodes as Ray's state API has them.
    """
    types = list(declared)
    known = {group for one in types for group in one.groups}
    added = [
        NodeType(name=f"node {node['node_name']}", resources=node["resources_total"])
        for node in nodes
        if node["state"] == "ALIVE" and _group(node) not in known
    ]
    return [*types, *added]


def _group(node: Mapping[str, Any]) -> str:
    return HEAD if node.get("is_head_node") else (node.get("labels") or {}).get(GROUP_LABEL, "")


def never(asked: Waiting, types: Sequence[NodeType]) -> str | None:
    """Why a cluster of these nodes can never hold all that is asked for; None if it may.

    Only what is sure is told: that the bundles may have to be on one node, or on different ones, is
    not looked at.
    """
    for bundle in asked.bundles:
        if not can_hold(bundle, types):
            return missing(bundle, types)
    return _too_many(asked.bundles, types)


def _too_many(bundles: Sequence[Mapping[str, float]], types: Sequence[NodeType]) -> str | None:
    """Whether each bundle fits, but not all at the same time on the largest cluster."""
    for bundle, count in _counted(bundles):
        room = sum(_times(bundle, one) for one in types)
        if count > room:
            return f"asked {count} x {_text(bundle)}, the largest cluster holds {room}"
    names = dict.fromkeys(name for bundle in bundles for name in bundle)
    for name in names:
        asked = sum(bundle.get(name, 0) for bundle in bundles)
        most = sum(one.most * one.resources.get(name, 0) for one in types)
        if asked > most:
            return (
                f"{name}: asked {amount(name, asked)} in all, the largest cluster has "
                f"{amount(name, most)}"
            )
    return None


def _times(bundle: Mapping[str, float], node_type: NodeType) -> int:
    """How often a bundle fits on all nodes of a type."""
    fits = [
        int(node_type.resources.get(name, 0) / number + 1e-9)
        for name, number in bundle.items()
        if number
    ]
    return node_type.most * min(fits, default=LIMIT)


def free(summary: Mapping[str, Any]) -> list[dict[str, float]]:
    """What each node has free, except memory, from the dashboard's summary of the nodes."""
    return [
        {name: float(whole) - float(used) for used, whole, name in _USE.findall(text)}
        for text in summary.get("nodeLogicalResources", {}).values()
    ]


def used(summary: Mapping[str, Any]) -> dict[str, dict[str, float]]:
    """What is in use on each node, except memory: node name -> resource -> amount."""
    names = {one["raylet"]["nodeId"]: one["raylet"]["nodeName"] for one in summary["summary"]}
    return {
        names[node]: {name: float(amount) for amount, _, name in _USE.findall(text)}
        for node, text in summary.get("nodeLogicalResources", {}).items()
        if node in names
    }


def has_room(bundle: Mapping[str, float], free: Iterable[Mapping[str, float]]) -> bool:
    """Whether some node has this free, whatever memory is asked for."""
    asked = {name: number for name, number in bundle.items() if name != "memory"}
    return any(all(node.get(name, 0) >= n for name, n in asked.items()) for node in free)


def scarce(bundle: Mapping[str, float]) -> str:
    """What somebody who asks for this waits for, in a word: "GPUs", "CPUs", "memory"."""
    words = {"GPU": "GPUs", "CPU": "CPUs"}
    wanted = [name for name, number in bundle.items() if number]
    return next((words[name] for name in words if name in wanted), ", ".join(wanted) or "CPUs")


def shape(bundles: Sequence[Mapping[str, float]]) -> str:
    """What is asked for, in a few words: "2 x {CPU: 1, GPU: 1}"."""
    return " + ".join(
        f"{count} x {_text(bundle)}" if count > 1 else _text(bundle)
        for bundle, count in _counted(bundles)
    )


def _counted(bundles: Sequence[Mapping[str, float]]) -> list[tuple[dict[str, float], int]]:
    """Each different bundle, and how often it is there."""
    counts = Counter(tuple(sorted(bundle.items())) for bundle in bundles)
    return [(dict(bundle), count) for bundle, count in counts.items()]


def _text(bundle: Mapping[str, float]) -> str:
    return "{" + ", ".join(f"{name}: {amount(name, n)}" for name, n in bundle.items()) + "}"


def _article(kind: Kind) -> str:
    return f"an {kind}" if kind == "actor" else f"a {kind}"
