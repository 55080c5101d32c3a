"""Scaling by hand: a worker group's limits change, and KubeRay or Ray's autoscaler acts."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from sunspot.errors import SunspotError, UsageError
from sunspot.ray.handle import ClusterHandle
from sunspot.stack import Stack
from sunspot.targets import abilities, members
from sunspot.targets.kubernetes.api import Object
from sunspot.targets.kubernetes.objects import Cluster, Pod
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


def check(stack: Stack, sizes: Mapping[str, Size]) -> None:
    """Checks that groups can have these sizes.

    Raises:
        UsageError: there is no such group, or a size is above its max_workers.
    """
    for name, size in sizes.items():
        most = abilities.group(stack, name).max_workers
        if size.highest > most:
            raise UsageError(
                f"{name}={size} is outside 0 to {most}, its max_workers; raise max_workers in "
                f"Pulumi.{stack.name}.yaml, then take the stack down and bring it up again"
            )


def scale(
    cluster: Cluster,
    handle: ClusterHandle,
    group: str,
    size: Size,
    progress: Progress,
) -> None:
    """Gives a group a size; returns when its workers are members, and the others have ended.

    The caller holds the cluster's lock.
    """
    found = cluster.found()
    if found is None:
        raise SunspotError(f"the RayCluster {cluster.names.cluster} is gone")
    workers = [pod for pod in cluster.pods() if pod.group == group and not pod.is_ending]
    count = size.nearest(len(workers))
    # The newest first, as on the other targets.
    leaving = list(reversed(workers))[: max(0, len(workers) - count)]
    at = _index(found, group)
    is_range = bool(found["spec"].get("enableInTreeAutoscaling"))
    cluster.api.patch(
        cluster.where, _patch(found, at, size, count, leaving, is_range=is_range), "json"
    )
    if leaving:
        names = ", ".join(pod.name for pod in leaving)
        progress(f"draining {names} (at most {_grace(leaving)} s)")
        _wait_until_gone(cluster, leaving)
        progress(f"stopped {names}")
    _wait_until_members(cluster, handle, group, count, progress)


def _index(found: Object, group: str) -> int:
    names = [one["groupName"] for one in found["spec"].get("workerGroupSpecs") or ()]
    if group not in names:
        raise SunspotError(f"the RayCluster has no group {group!r}; it has: {', '.join(names)}")
    return names.index(group)


def _patch(
    found: Object, at: int, size: Size, count: int, leaving: Sequence[Pod], *, is_range: bool
) -> list[Object]:
    """The changes of one worker group, if it is still where it was."""
    where, group = f"/spec/workerGroupSpecs/{at}", found["spec"]["workerGroupSpecs"][at]
    most = size.maximum
    if most is None:
        most = max(group.get("maxReplicas", 0), size.minimum) if is_range else size.minimum
    made: list[Object] = [
        {"op": "test", "path": f"{where}/groupName", "value": group["groupName"]},
        {"op": "add", "path": f"{where}/minReplicas", "value": size.minimum if is_range else count},
        # KubeRay demands at least 1.
        {"op": "add", "path": f"{where}/maxReplicas", "value": max(1, most)},
        {"op": "add", "path": f"{where}/replicas", "value": count},
    ]
    if leaving:
        doomed = {"workersToDelete": [pod.name for pod in leaving]}
        made.append({"op": "add", "path": f"{where}/scaleStrategy", "value": doomed})
    return made


def _grace(leaving: Sequence[Pod]) -> int:
    return max(pod.object["spec"].get("terminationGracePeriodSeconds") or 30 for pod in leaving)


def _wait_until_gone(cluster: Cluster, leaving: Sequence[Pod]) -> None:
    names = {pod.name for pod in leaving}
    deadline = time.monotonic() + _grace(leaving) + END_PATIENCE_S
    while here := names & {pod.name for pod in cluster.pods()}:
        if time.monotonic() > deadline:
            raise SunspotError(
                f"{', '.join(sorted(here))} did not end; see: kubectl describe pod "
                f"{min(here)} --namespace {cluster.names.namespace}"
            )
        time.sleep(POLL_S)


def _wait_until_members(
    cluster: Cluster, handle: ClusterHandle, group: str, count: int, progress: Progress
) -> None:
    from sunspot.ray.jobs import JobClient

    client, deadline, told = JobClient(handle), time.monotonic() + UP_TIMEOUT_S, ""
    while True:
        joined = members.addresses(client.state("nodes"))
        pods = [pod for pod in cluster.pods() if pod.group == group and not pod.is_ending]
        missing = [pod for pod in pods if pod.node_name not in joined]
        if len(pods) >= count and not missing:
            return
        waits = "; ".join(f"{pod.name}: {pod.why() or pod.phase}" for pod in missing)
        if time.monotonic() > deadline:
            raise SunspotError(
                f"{len(pods) - len(missing)} of {count} workers of {group} joined within "
                f"{UP_TIMEOUT_S:g} s. {waits}"
            )
        workers = f"{count} worker{'s' if count != 1 else ''} of {group}"
        if (now := f"waiting for {workers}. {waits}") != told:
            progress(now)
            told = now
        time.sleep(POLL_S)
