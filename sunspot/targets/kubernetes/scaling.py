"""Scaling by hand: a worker group's limits change, and KubeRay or Ray's autoscaler acts."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from sunspot.errors import SunspotError, UsageError
from sunspot.ray.handle import ClusterHandle
from sunspot.signals import uninterrupted
from sunspot.stack import Stack
from sunspot.targets import abilities, members
from sunspot.targets.kubernetes.api import Object
from sunspot.targets.kubernetes.objects import Cluster, Pod
from sunspot.targets.kubernetes.outages import outlast
from sunspot.targets.protocol import UP_TIMEOUT_S, Progress
from sunspot.targets.scaling import Size

POLL_S = 0.5

# What a pod that drains takes at most is its grace period.
END_PATIENCE_S = 60.0


def sizes(stack: Stack, found: Object | None) -> dict[str, Size]:
    """The size of each group now: a range where an autoscaler runs."""
    spec = (found or {}).get("spec") or {}
    groups = {one["groupName"]: one for one in spec.get("workerGroupSpecs") or ()}
    scales = bool(spec.get("enableInTreeAutoscaling"))
    return {
        group.name: _size(groups[group.name], ranges=scales and group.is_autoscaled())
        for group in stack.cluster.scaling_groups
        if group.name in groups
    }


def _size(group: Object, *, ranges: bool) -> Size:
    if ranges:
        return Size(minimum=group.get("minReplicas", 0), maximum=group.get("maxReplicas"))
    return Size(minimum=group.get("replicas", group.get("minReplicas", 0)))


def check(stack: Stack, sizes: Mapping[str, Size], *, by_pulumi: bool) -> None:
    """Checks that groups can have these sizes, of a cluster that Pulumi made or `up`.

    Raises:
        UsageError: there is no such group, or a size is above its max_workers.
    """
    for name, size in sizes.items():
        most = abilities.group(stack, name).max_workers
        if size.highest > most:
            again = "take the stack down and bring it up again"
            then = f"run: pulumi up -s {stack.name}" if by_pulumi else again
            raise UsageError(
                f"{name}={size} is outside 0 to {most}, its max_workers; raise max_workers in "
                f"Pulumi.{stack.name}.yaml, then {then}"
            )


def scale(
    cluster: Cluster,
    handle: ClusterHandle,
    stack: Stack,
    group: str,
    size: Size,
    progress: Progress,
) -> None:
    """Gives a group a size; returns when its workers are members, and the others have ended.

    Whatever stops new workers, the group has what it had before. The caller holds the cluster's
    lock.

    Args:
        cluster: its objects.
        handle: the cluster.
        stack: what it is made from.
        group: the group's name.
        size: the size. With an on-demand twin, both together are scaled to it; from then on,
            `minimum` workers are of the group's own type, and each type may grow to `maximum`.
        progress: called with what happens.
    """
    node_types = abilities.group(stack, group).node_types()
    found, workers = _found(cluster), _workers(cluster, node_types)
    before, known = [_group(found, one) for one in node_types], cluster.refusals(found)
    count = size.nearest(len(workers))
    leaving = _last(node_types, workers)[: max(0, len(workers) - count)]
    is_range = bool(found["spec"].get("enableInTreeAutoscaling"))
    counts = _counts(node_types, [pod for pod in workers if pod not in leaving], count)
    limits = {
        one["groupName"]: _limits(one, size, counts[one["groupName"]], is_range=is_range)
        for one in before
    }
    for twin in node_types[1:]:
        limits[twin]["minReplicas"] = 0  # the workers that there must be are the group's own
    _change(cluster, found, limits, leaving)
    if leaving:
        names = ", ".join(pod.name for pod in leaving)
        progress(f"draining {names} (at most {_grace(leaving)} s)")
        _wait_until_gone(cluster, leaving, progress)
        progress(f"stopped {names}")
    try:
        _wait_until_members(cluster, handle, node_types, count, known, progress)
    except BaseException as error:
        if count > len(workers):
            with uninterrupted():
                error.add_note(_put_back(cluster, handle.name, before, workers))
        raise


def _found(cluster: Cluster) -> Object:
    found = cluster.found()
    if found is None:
        raise SunspotError(f"the RayCluster {cluster.names.cluster} is gone")
    return found


def _workers(cluster: Cluster, node_types: Sequence[str]) -> list[Pod]:
    return [pod for pod in cluster.pods() if pod.group in node_types and not pod.is_ending]


def _last(node_types: Sequence[str], workers: Sequence[Pod]) -> list[Pod]:
    """Those that leave first, first: what waits, then the twin's; the newest, as elsewhere."""
    newest_first = list(reversed(workers))
    return sorted(newest_first, key=lambda pod: (pod.runs, pod.group == node_types[0]))


def _counts(node_types: Sequence[str], here: Sequence[Pod], count: int) -> dict[str, int]:
    """How many pods each node type is to have: those here, and new ones of the first."""
    counts = {one: sum(pod.group == one for pod in here) for one in node_types}
    counts[node_types[0]] += count - len(here)
    return counts


def _groups(found: Object) -> list[Object]:
    return found["spec"].get("workerGroupSpecs") or []


def _group(found: Object, name: str) -> Object:
    for one in _groups(found):
        if one["groupName"] == name:
            return one
    names = ", ".join(one["groupName"] for one in _groups(found))
    raise SunspotError(f"the RayCluster has no group {name!r}; it has: {names}")


def _limits(group: Object, size: Size, count: int, *, is_range: bool) -> dict[str, int]:
    """What a worker group is to have of its limits."""
    most = size.maximum
    if most is None:
        most = max(group.get("maxReplicas", 0), size.minimum) if is_range else size.minimum
    least = size.minimum if is_range else count
    return {"minReplicas": least, "maxReplicas": most, "replicas": count}


def _change(
    cluster: Cluster, found: Object, limits: Mapping[str, Mapping[str, int]], doomed: Sequence[Pod]
) -> None:
    """Changes limits of worker groups that are still where they were, and ends some pods."""
    made: list[Object] = []
    for group, given in limits.items():
        where = f"/spec/workerGroupSpecs/{_groups(found).index(_group(found, group))}"
        made.append({"op": "test", "path": f"{where}/groupName", "value": group})
        changes: dict[str, Any] = dict(given)
        if names := [pod.name for pod in doomed if pod.group == group]:
            changes["scaleStrategy"] = {"workersToDelete": names}
        made += [
            {"op": "add", "path": f"{where}/{key}", "value": value}
            for key, value in changes.items()
        ]
    cluster.api.patch(cluster.where, made, "json")


def _put_back(cluster: Cluster, name: str, before: Sequence[Object], workers: Sequence[Pod]) -> str:
    """Gives a group the limits and the workers that it had before; says what became of it."""
    node_types, count = [one["groupName"] for one in before], len(workers)
    group, counts = node_types[0], _counts(node_types, workers, count)
    limits = {
        one["groupName"]: {
            "minReplicas": one.get("minReplicas", 0),
            "maxReplicas": one.get("maxReplicas", 1),
            "replicas": counts[one["groupName"]],
        }
        for one in before
    }
    had = {pod.name for pod in workers}
    try:
        doomed = [pod for pod in _workers(cluster, node_types) if pod.name not in had]
        _change(cluster, _found(cluster), limits, doomed)
    except SunspotError as error:
        again = f"sunspot scale {name} {group}={count}"
        return f"in addition, group {group} did not get its size back: {error}; try: {again}"
    return f"group {group} has its size of before again: {count}"


def _grace(leaving: Sequence[Pod]) -> int:
    return max(pod.object["spec"].get("terminationGracePeriodSeconds") or 30 for pod in leaving)


def _wait_until_gone(cluster: Cluster, leaving: Sequence[Pod], progress: Progress) -> None:
    names = {pod.name for pod in leaving}
    deadline = time.monotonic() + _grace(leaving) + END_PATIENCE_S
    while here := names & {pod.name for pod in outlast(cluster.pods, progress)}:
        if time.monotonic() > deadline:
            raise SunspotError(
                f"{', '.join(sorted(here))} did not end; see: kubectl describe pod "
                f"{min(here)} --namespace {cluster.names.namespace}"
            )
        time.sleep(POLL_S)


def _reasons(pods: Sequence[Pod]) -> list[str]:
    """Why pods are not members, each reason once: the scheduler's takes a line for each pod."""
    named: dict[str, list[str]] = {}
    for pod in pods:
        named.setdefault(pod.why() or pod.phase, []).append(pod.name)
    return [
        f"{first}{f' and {len(others)} more' if others else ''}: {why}"
        for why, (first, *others) in named.items()
    ]


def _wait_until_members(
    cluster: Cluster,
    handle: ClusterHandle,
    node_types: Sequence[str],
    count: int,
    known: Mapping[str, str],
    progress: Progress,
) -> None:
    """Waits for a group's workers. What KubeRay was refused before, `known`, is not told."""
    group, deadline, told = node_types[0], time.monotonic() + UP_TIMEOUT_S, ""
    while True:
        listed = members.alive(handle)
        pods = outlast(lambda: _workers(cluster, node_types), progress)
        missing = [pod for pod in pods if not any(pod.is_node(one) for one in listed or ())]
        # Beside those of an on-demand twin, pods of the group's own type may wait for spot.
        if len(pods) - len(missing) >= count:
            return
        reasons = [members.UNANSWERED] if listed is None else _reasons(missing)
        if len(pods) < count:
            refused = outlast(lambda: cluster.refusals(_found(cluster)), progress)
            is_late = time.monotonic() > deadline
            now = (text for text, at in refused.items() if is_late or known.get(text) != at)
            reasons += list(now)[-1:]
        waits = "; ".join(reasons)
        if time.monotonic() > deadline:
            raise SunspotError(
                f"{len(pods) - len(missing)} of {count} workers of {group} joined within "
                f"{UP_TIMEOUT_S:g} s" + (f". {waits}" if waits else "")
            )
        workers = f"{count} worker{'s' if count != 1 else ''} of {group}"
        if (now := f"waiting for {workers}" + (f". {waits}" if waits else "")) != told:
            progress(now)
            told = now
        time.sleep(POLL_S)
