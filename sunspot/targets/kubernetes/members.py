"""The nodes of a cluster: what Ray says of its members, and Kubernetes of pods that are not yet."""

from __future__ import annotations

import codecs
from collections.abc import Sequence
from typing import Any, TextIO

from sunspot.errors import SunspotError
from sunspot.ray.handle import ClusterHandle
from sunspot.ray.resources import GIB
from sunspot.spec_values import HEAD
from sunspot.stack import Stack
from sunspot.targets import abilities
from sunspot.targets import members as ray_members
from sunspot.targets.kubernetes import pods as templates
from sunspot.targets.kubernetes import raycluster, scaling
from sunspot.targets.kubernetes.errors import ApiError
from sunspot.targets.kubernetes.objects import Cluster, Pod
from sunspot.targets.protocol import NodeStatus, Progress
from sunspot.targets.scaling import least

TAIL_LINES = 30

# A container that has not begun has no log (kubelet: "is waiting to start").
_NOT_BEGUN = "waiting to start"


def nodes(stack: Stack, cluster: Cluster, handle: ClusterHandle | None) -> list[NodeStatus]:
    """The cluster's nodes, the head first, lost ones last.

    Args:
        stack: its stack.
        cluster: its objects.
        handle: how to reach it; None while its head cannot be reached.
    """
    here = {pod.node_name: pod for pod in cluster.pods()}
    members = _listed(handle)
    listed = [(one["node_name"], ray_members.node(one)) for one in members]
    found = [one for _, one in listed if one is not None]
    # The autoscaler has ended Ray on them, and now their pods.
    ended = {name for name, one in listed if one is None}
    # Ray words the end of a pod that was deleted as a preemption, whoever deleted it.
    found = [one for one in found if templates.POD_ENDS not in one.log]
    # A head's pod that was replaced leaves a member of its name behind.
    alive = {one.name for one in found if one.state != "lost"}
    found = [one for one in found if one.state != "lost" or one.name not in alive]
    kinds = {kind.node_type: kind for kind in raycluster.pods_of(stack)}
    names = {one.name for one in found}
    names |= {
        pod.node_name
        for pod in here.values()  # of a pod with the name of its machine, Ray does not know its own
        if not (pod.gives_its_name or pod.is_head) and any(map(pod.is_node, members))
    }
    for name, pod in here.items():
        is_leaving = pod.is_ending or (name in ended and not pod.is_head)
        if name not in names and pod.group in kinds and not is_leaving:
            found.append(_starting(pod, kinds[pod.group], cluster))
    shapes = {kind.group: kind.ray.resources for kind in kinds.values()}
    found += ray_members.lacked(
        stack, found, lambda group: shapes[group.name], lambda: _least(stack, cluster)
    )
    order = {"up": 1, "draining": 1, "starting": 2, "lost": 3}
    return sorted(found, key=lambda one: (not one.is_head, order[one.state], one.name))


def missing(stack: Stack, cluster: Cluster, handle: ClusterHandle) -> str:
    """What the cluster still lacks, in words; "" if nothing.

    A state that was kept has the nodes of the old cluster, as alive until Ray has asked them: only
    those of pods that are there count.

    Args:
        stack: its stack.
        cluster: its objects.
        handle: how to reach it.
    """
    alive = ray_members.alive(handle)
    if alive is None:
        return ray_members.UNANSWERED
    here = [pod for pod in cluster.pods() if not pod.is_ending]
    found = [one for one in alive if any(pod.is_node(one) for pod in here)]
    if not any(one["is_head_node"] for one in found):
        return ray_members.HEADLESS
    return ray_members.lacking(stack, found, _least(stack, cluster))


def _least(stack: Stack, cluster: Cluster) -> dict[str, int]:
    """How many workers a group has at least, as it was scaled last."""
    return least(scaling.sizes(stack, cluster.found()))


def _listed(handle: ClusterHandle | None) -> Sequence[dict[str, Any]]:
    """Ray's own list; empty where Ray does not answer."""
    from sunspot.ray.jobs import JobClient

    if handle is None:
        return []
    try:
        return JobClient(handle).state("nodes")
    except SunspotError:
        return []


def _starting(pod: Pod, kind: templates.Pod, cluster: Cluster) -> NodeStatus:
    """A pod that is not a member: it begins, or has ended."""
    lost = pod.phase in ("Failed", "Succeeded")
    has = kind.ray.resources
    why = pod.why()
    return NodeStatus(
        name=pod.node_name,
        group=kind.group,
        market=kind.market,
        state="lost" if lost else "starting",
        cpus=float(has.cpus),
        gpus=float(has.gpus),
        memory_gb=round(has.memory / GIB, 1),
        log=_tail(cluster, pod) if lost else "",
        notes=(why,) if why else (),
    )


def _tail(cluster: Cluster, pod: Pod) -> str:
    try:
        return cluster.log(pod.name, lines=TAIL_LINES).strip()
    except ApiError as error:
        return str(error)


def show_log(
    name: str, cluster: Cluster, node: str, out: TextIO, note: Progress, *, follow: bool
) -> int:
    """Prints what Ray's container on a node has printed; returns 0.

    Args:
        name: the stack's name.
        cluster: its objects.
        node: the node's name.
        out: where the log is printed.
        note: called with notes for people.
        follow: whether to go on until the container ends.

    Raises:
        UsageError: there is no such node.
    """
    here = {pod.node_name: pod for pod in cluster.pods()}
    if node not in here:
        raise abilities.unknown(name, "node", node, here or [HEAD])
    pod = here[node]
    query = {"container": templates.RAY_CONTAINER, "follow": "true" if follow else None}
    try:
        decoder = codecs.getincrementaldecoder("utf-8")("replace")  # a piece ends anywhere
        for piece in cluster.api.stream(cluster.log_path(pod.name), **query):
            out.write(decoder.decode(piece))
            out.flush()
        out.write(decoder.decode(b"", final=True))
    except ApiError as error:
        if _NOT_BEGUN not in str(error):
            raise
        note(f"{node} has not begun: {pod.why() or pod.phase}")
    return 0
