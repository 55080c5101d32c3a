"""Whether a cluster's pods can ever run here: the nodes' sizes, taints and labels, and quotas."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any

from sunspot.ray import feasibility
from sunspot.ray.feasibility import NodeType
from sunspot.stack import Stack
from sunspot.targets.kubernetes import quantities, raycluster
from sunspot.targets.kubernetes.api import Object

# What the autoscalers of nodes mark theirs with: AKS, GKE, EKS and Karpenter by a label, Cluster
# API by an annotation (cluster-api.sigs.k8s.io, "Labels and Annotations").
_POOLS = (
    "kubernetes.azure.com/agentpool",
    "cloud.google.com/gke-nodepool",
    "eks.amazonaws.com/nodegroup",
    "karpenter.sh/nodepool",
    "cluster.x-k8s.io/machine",
)

# The scopes of quotas that all our pods are in.
_OUR_SCOPES = {"NotTerminating", "NotBestEffort"}

# What keeps a pod away (kubernetes.io, "Taints and Tolerations"); the third kind only rather would.
_KEEPS_AWAY = ("NoSchedule", "NoExecute")


@dataclass(frozen=True, kw_only=True)
class Kind:
    """The pods of the head or of one worker group.

    Attributes:
        group: the Ray node type; "head".
        count: how many there are at the start.
        asks: what each requests, all its containers together.
        spec: the spec of its template.
    """

    group: str
    count: int
    asks: quantities.Amounts
    spec: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Misfit:
    """A kind of pod that no node can hold.

    Attributes:
        group: the Ray node type; "head".
        text: why.
        by_size: whether nodes that it may use are too small; otherwise it may use none.
        may_come: whether nodes may be added by themselves.
    """

    group: str
    text: str
    by_size: bool
    may_come: bool


def kinds(stack: Stack) -> list[Kind]:
    """The kinds of pods of a stack's cluster, the head first."""
    spec = raycluster.make(stack)[0]["spec"]
    beside = spec.get("autoscalerOptions", {}).get("resources", {}).get("requests", {})
    head = spec["headGroupSpec"]["template"]["spec"]
    made = [Kind(group="head", count=1, asks=_asks(head, beside), spec=head)]
    for group in spec["workerGroupSpecs"]:
        pod = group["template"]["spec"]
        least = group.get("replicas", group["minReplicas"])
        made.append(Kind(group=group["groupName"], count=least, asks=_asks(pod), spec=pod))
    return made


def _asks(pod: Mapping[str, Any], beside: Mapping[str, str] | None = None) -> quantities.Amounts:
    parts = [one.get("resources", {}).get("requests", {}) for one in pod["containers"]]
    return quantities.total(map(quantities.amounts, [*parts, *([beside] if beside else [])]))


def node_types(stack: Stack) -> list[NodeType]:
    """What Ray counts on the cluster's nodes: less than a whole node where others need a part."""
    counted = {pod.node_type: pod.ray.resources.amounts() for pod in raycluster.pods_of(stack)}
    return [replace(one, resources=counted[one.groups[0]]) for one in feasibility.node_types(stack)]


def misfits(stack: Stack, nodes: Sequence[Object]) -> Iterator[Misfit]:
    """The kinds of pods that none of the nodes can hold, even if it were empty.

    A Kubernetes without any node has an autoscaler of nodes that has taken away the last one.
    """
    may_come = not nodes or any(set(_POOLS) & _marks(node) for node in nodes)
    for kind in kinds(stack):
        allowed = [node for node in nodes if _is_allowed(kind.spec, node)]
        if not allowed:
            text = f"none of the {len(nodes)} nodes has {_place(kind.spec)}"
        elif not any(_holds(node, kind.asks) for node in allowed):
            has = _largest(allowed, kind.asks)
            text = f"it asks for {_list(kind.asks)}, and the largest node it may use has {has}"
        else:
            continue
        yield Misfit(group=kind.group, text=text, by_size=bool(allowed), may_come=may_come)


def _marks(node: Object) -> set[str]:
    metadata = node["metadata"]
    return {*(metadata.get("labels") or {}), *(metadata.get("annotations") or {})}


def _is_allowed(pod: Mapping[str, Any], node: Object) -> bool:
    labels = node["metadata"].get("labels") or {}
    wanted = pod.get("nodeSelector") or {}
    taints = [
        one
        for one in node["spec"].get("taints") or ()
        if one.get("effect") in _KEEPS_AWAY
        # The node is cordoned, not ready or new: that passes.
        and not one["key"].startswith("node.kubernetes.io/")
    ]
    return wanted.items() <= labels.items() and all(
        any(_tolerates(one, taint) for one in pod.get("tolerations") or ()) for taint in taints
    )


def _tolerates(toleration: Mapping[str, Any], taint: Mapping[str, Any]) -> bool:
    if toleration.get("effect") not in (None, taint["effect"]):
        return False
    if toleration.get("key") not in (None, taint["key"]):
        return False
    is_any = toleration.get("operator") == "Exists"
    return is_any or toleration.get("value", "") == taint.get("value", "")


def _holds(node: Object, asks: quantities.Amounts) -> bool:
    has = _allocatable(node)
    return all(has.get(name, Decimal(0)) >= amount for name, amount in asks.items())


def _allocatable(node: Object) -> dict[str, Decimal]:
    return quantities.amounts((node.get("status") or {}).get("allocatable") or {})


def _largest(nodes: Sequence[Object], asks: quantities.Amounts) -> str:
    """The node that has most of what is asked for, each by its share."""

    def share(node: Object) -> Decimal:
        has = _allocatable(node)
        return min(has.get(name, Decimal(0)) / amount for name, amount in asks.items() if amount)

    best = max(nodes, key=share)
    has = _allocatable(best)
    return (
        f"{_list({name: has.get(name, Decimal(0)) for name in asks})} ({best['metadata']['name']})"
    )


def _place(pod: Mapping[str, Any]) -> str:
    labels = [f"{key}={value}" for key, value in (pod.get("nodeSelector") or {}).items()]
    wanted = f"the labels {', '.join(labels)}" if labels else "a place for it"
    return f"{wanted} and only taints that it tolerates"


def _list(amounts: quantities.Amounts) -> str:
    return ", ".join(quantities.shown(name, amount) for name, amount in amounts.items())


def short_quotas(stack: Stack, quotas: Sequence[Object], here: Mapping[str, int]) -> Iterator[str]:
    """What the namespace's quotas have too little of for the pods of the start, a line each.

    Args:
        stack: the stack.
        quotas: the namespace's.
        here: how many pods of each Ray node type there are already, which what is used counts.
    """
    needs: dict[str, Decimal] = {}
    for kind in kinds(stack):
        count = max(0, kind.count - here.get(kind.group, 0))
        needs["pods"] = needs.get("pods", Decimal(0)) + count
        for name, amount in kind.asks.items():
            for key in (name, f"requests.{name}", f"limits.{name}"):
                needs[key] = needs.get(key, Decimal(0)) + amount * count
    for quota in filter(_counts_ours, quotas):
        status = quota.get("status") or {}
        used = quantities.amounts(status.get("used") or {})
        for name, most in quantities.amounts(status.get("hard") or {}).items():
            free = max(Decimal(0), most - used.get(name, Decimal(0)))
            if name in needs and needs[name] > free:
                yield (
                    f"quota {quota['metadata']['name']} leaves {quantities.shown(name, free)} "
                    f"({name}), and the cluster needs {quantities.shown(name, needs[name])} at "
                    "the start"
                )


def _counts_ours(quota: Object) -> bool:
    """Whether a quota counts all pods, or those with requests and without an end, as ours are.

    One for pods of a priority class counts others (kubernetes.io, "Resource Quotas").
    """
    spec = quota.get("spec") or {}
    return not spec.get("scopeSelector") and {*(spec.get("scopes") or ())} <= _OUR_SCOPES
