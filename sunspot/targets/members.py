"""The members of a cluster, as Ray's state API lists them; for targets with remote nodes."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from sunspot.errors import SunspotError, UsageError
from sunspot.node.collector import GROUP_LABEL, MARKET_LABEL
from sunspot.ray import resources
from sunspot.ray.handle import ClusterHandle
from sunspot.ray.resources import GIB, NodeResources
from sunspot.spec import RayNodeConfig, ScalingGroup, size_for
from sunspot.spec_values import HEAD
from sunspot.stack import Stack
from sunspot.targets import abilities
from sunspot.targets.protocol import NodeStatus

# How Ray words the end of a node that was removed on purpose: stopped, drained, or idle
# (ray/dashboard/utils.py, compose_state_message, 2.60). A lost one has "Unexpected termination".
_REMOVED = re.compile(r"^expected termination|drain|idle", re.IGNORECASE)

UNANSWERED = "the head's job API does not answer yet"
"""What a cluster lacks while its head starts."""
HEADLESS = "the head has not joined its own cluster yet"
"""What it lacks next."""

# The order of the nodes after the head.
_ORDER = {"up": 1, "draining": 1, "starting": 2, "lost": 3}


def of_machine(node: RayNodeConfig) -> NodeResources:
    """What Ray counts on the virtual machine that the node runs on."""
    return resources.of_size(size_for(node))


def nodes(
    stack: Stack,
    handle: ClusterHandle,
    shape: Callable[[RayNodeConfig], NodeResources] = of_machine,
    least: Callable[[], Mapping[str, int]] = dict,
) -> list[NodeStatus]:
    """The cluster's members, and the workers that each group's minimum still lacks.

    Args:
        stack: the cluster's stack.
        handle: how to reach it.
        shape: what a worker will have that is not there yet.
        least: the minimum of each group that was scaled by hand; asked for if there are fewer
            workers than the stack's own minimum, since on Azure that takes seconds.
    """
    from sunspot.ray.jobs import JobClient

    members = [node(member) for member in JobClient(handle).state("nodes")]
    found = [one for one in members if one is not None]
    found += lacked(stack, found, lambda group: shape(group.worker_nodes), least)
    return sorted(found, key=lambda one: (not one.is_head, _ORDER[one.state], one.name))


def lacked(
    stack: Stack,
    found: Iterable[NodeStatus],
    shape: Callable[[ScalingGroup], NodeResources],
    least: Callable[[], Mapping[str, int]],
) -> list[NodeStatus]:
    """The workers that each group's minimum still lacks. Arguments as of `nodes`."""
    of_type = Counter(one.group for one in found if one.state != "lost")
    groups = [
        (group, sum(of_type[node_type] for node_type in group.node_types()))
        for group in stack.cluster.scaling_groups
    ]
    if all(here >= group.min_workers for group, here in groups):
        return []
    wanted = _wanted(stack, least())
    return [
        one
        for group, here in groups
        for one in _awaited(group, wanted[group.name] - here, shape(group))
    ]


def _wanted(stack: Stack, least: Mapping[str, int] | None) -> dict[str, int]:
    """How many workers each group has at least: as it was scaled last, or by the stack."""
    by_stack = {group.name: group.min_workers for group in stack.cluster.scaling_groups}
    return by_stack | dict(least or {})


def missing(stack: Stack, handle: ClusterHandle) -> str:
    """What the cluster still lacks, in words; "" if nothing."""
    found = alive(handle)
    return UNANSWERED if found is None else lacking(stack, found)


def lacking(
    stack: Stack, members: Sequence[Mapping[str, Any]], least: Mapping[str, int] | None = None
) -> str:
    """As `missing`, of these members; `least` has what each group needs where that has changed."""
    if not members:
        return HEADLESS
    wanted = _wanted(stack, least)
    groups = [label(one, GROUP_LABEL) for one in members]
    joined = {
        group.name: sum(groups.count(node_type) for node_type in group.node_types())
        for group in stack.cluster.scaling_groups
    }
    short = [
        f"{joined[name]} of {count} workers of {name} joined"
        for name, count in wanted.items()
        if joined[name] < count
    ]
    return ", ".join(short)


def headless(handle: ClusterHandle) -> str:
    """Why the cluster has no head yet, in words; "" if it has one."""
    found = alive(handle)
    if found is None:
        return UNANSWERED
    return "" if found else HEADLESS


def alive(handle: ClusterHandle) -> list[dict[str, Any]] | None:
    """The members as the state API tells of them; None if it does not answer."""
    from sunspot.ray.jobs import JobClient

    try:
        return [one for one in JobClient(handle).state("nodes") if one["state"] == "ALIVE"]
    except SunspotError:
        return None


def node(member: Mapping[str, Any]) -> NodeStatus | None:
    """One member, from its entry in Ray's state API; None for one that was removed on purpose."""
    message = member.get("state_message") or ""
    is_up = member["state"] == "ALIVE"
    if not is_up and _REMOVED.search(message):
        return None
    has = member.get("resources_total") or {}
    is_head = member.get("is_head_node", False)
    draining = is_up and "drain" in message.lower()
    return NodeStatus(
        name=member["node_name"],
        group=HEAD if is_head else label(member, GROUP_LABEL),
        market=label(member, MARKET_LABEL),
        state="draining" if draining else "up" if is_up else "lost",
        cpus=has.get("CPU", 0.0),
        gpus=has.get("GPU", 0.0),
        memory_gb=round(has.get("memory", 0.0) / GIB, 1),
        log="" if is_up else message,
    )


def label(member: Mapping[str, Any], name: str) -> str:
    """A label of a node, from its entry in Ray's state API; "" where it has none of that name."""
    return (member.get("labels") or {}).get(name, "")


def addresses(members: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """The private address of each member that is alive, by its name."""
    return {one["node_name"]: one["node_ip"] for one in members if one["state"] == "ALIVE"}


def _awaited(group: ScalingGroup, count: int, has: NodeResources) -> list[NodeStatus]:
    """`count` workers of a group that should be members but are not."""
    market = "spot" if group.market == "spot-with-fallback" else group.market
    return [
        NodeStatus(
            name=f"{group.name} (awaited {number})",
            group=group.name,
            market=market,
            state="starting",
            cpus=has.cpus,
            gpus=has.gpus,
            memory_gb=has.memory / GIB,
        )
        for number in range(1, count + 1)
    ]


def worker(stack: str, name: str, found: Sequence[NodeStatus]) -> NodeStatus:
    """The worker of that name among a cluster's nodes.

    Raises:
        UsageError: there is no such node, it is the head, or it is not up.
    """
    chosen = next((one for one in found if one.name == name), None)
    if chosen is None:
        raise abilities.unknown(stack, "node", name, [one.name for one in found])
    if chosen.is_head:
        workers = ", ".join(one.name for one in found if not one.is_head) or "none"
        raise UsageError(f"{name!r} is the head of {stack!r}; give one of its workers: {workers}")
    if chosen.state != "up":
        raise UsageError(f"node {name!r} of {stack!r} is not up but {chosen.state}")
    return chosen
