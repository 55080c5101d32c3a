"""The node pools of a stack on AKS, and the settings by which pods run on their own pool."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass

from sunspot.catalog import VmSize
from sunspot.ray.start import NodeMarket
from sunspot.spec import ScalingGroup, size_for
from sunspot.spec_values import HEAD
from sunspot.stack import Stack
from sunspot.targets.kubernetes import patching, raycluster
from sunspot.targets.kubernetes.settings import (
    GPUS_OF_AKS,
    SPOT_OF_AKS,
    Group,
    KubeRay,
    KubernetesSettings,
    Toleration,
)

# A pool's name: up to 12 lower-case letters and digits, a letter first
# (learn.microsoft.com/azure/aks/create-node-pools).
MAX_POOL_NAME = 12
SYSTEM_POOL = "system"
# AKS reserves 20 MB of a node for each pod that may run on it, and 250 may by default
# (learn.microsoft.com/azure/aks/node-resource-reservations); ours have one of Ray's.
MAX_PODS = 30
# Where the head's node has died, another one takes its place at once: AKS's own repair begins ten
# minutes later (learn.microsoft.com/azure/aks/node-auto-repair).
HEAD_NODES = 2
# Of the disk of AKS's own choice; images with CUDA unpack to tens of GB.
DISK_GIB = 128

# A node of ours has this label and this taint: only the pods of its own group run there.
GROUP = "sunspot/group"
GPU_LABEL = {"sunspot/gpu": "nvidia"}
# What AKS gives the nodes of a spot pool by itself (learn.microsoft.com/azure/aks/spot-node-pool).
SPOT = "kubernetes.azure.com/scalesetpriority"
NO_SCHEDULE = "NoSchedule"
# Labels that AKS gives every node, with the name of its pool.
POOL_LABELS = ("agentpool", "kubernetes.azure.com/agentpool")
# Labels that AKS gives every node of ours (learn.microsoft.com/azure/aks/use-labels).
_OF_OUR_NODES = {"kubernetes.io/os": "linux", "kubernetes.azure.com/mode": "user"}
_SIZE_LABEL = "node.kubernetes.io/instance-type"
_OF_EVERY_NODE = re.compile(r"([\w.-]+\.)?(kubernetes\.io|azure\.com)/.+")
# By this label, AKS's webhook gives a pod the identity of its service account.
USES_IDENTITY = {"azure.workload.identity/use": "true"}


@dataclass(frozen=True, kw_only=True)
class AksPool:
    """The nodes of the head, or of one group and market: one agent pool, one Ray node type.

    Attributes:
        name: the pool's name in AKS.
        node_type: the Ray node type of its pods.
        group: the group in the stack; "head".
        market: how its nodes are bought.
        size: their size; each has one pod of Ray's.
        minimum: nodes that stay without any pod; 0 but for the head.
        maximum: the most nodes that AKS's autoscaler makes.
    """

    name: str
    node_type: str
    group: str
    market: NodeMarket
    size: VmSize
    minimum: int
    maximum: int

    @property
    def ephemeral_disk(self) -> bool:
        """Whether the OS disk is on the machine's temporary disk."""
        return self.size.temp_gib >= DISK_GIB

    @property
    def has_gpus(self) -> bool:
        """Whether its nodes have GPUs."""
        return bool(self.size.gpu_count)

    @property
    def labels(self) -> dict[str, str]:
        """The labels of its nodes."""
        spot = {SPOT: "spot"} if self.market == "spot" else {}
        return {GROUP: self.group, **(GPU_LABEL if self.has_gpus else {}), **spot}

    @property
    def taints(self) -> list[str]:
        """The taints of its nodes, as AKS writes them."""
        spot = [f"{SPOT}=spot:{NO_SCHEDULE}"] if self.market == "spot" else []
        gpus = [f"sku=gpu:{NO_SCHEDULE}"] if self.has_gpus else []
        return [f"{GROUP}={self.group}:{NO_SCHEDULE}", *gpus, *spot]

    def may_have(self, key: str, value: str) -> bool:
        """Whether its nodes have a label, or AKS may give it to them."""
        known = {**_OF_OUR_NODES, **dict.fromkeys(POOL_LABELS, self.name)}
        known[_SIZE_LABEL] = self.size.name
        if key in known:
            return value == known[key]
        if key == SPOT or not _OF_EVERY_NODE.fullmatch(key):
            return self.labels.get(key) == value
        return True


def placed(stack: Stack) -> Stack:
    """The stack with settings by which the pods of each group run on its own pools."""
    given = raycluster.settings(stack)
    name = raycluster.names(stack).cluster
    names = [HEAD, *(group.name for group in stack.cluster.scaling_groups)]
    groups = {**given.groups, **{one: _group(given, name, one) for one in names}}
    # What the pools have of spot and of GPUs cannot be set otherwise.
    update = {
        "groups": groups,
        "gpu_nodes": given.gpu_nodes.plus(GPUS_OF_AKS),
        "spot_nodes": given.spot_nodes.plus(SPOT_OF_AKS),
        "max_pods": given.max_pods if "max_pods" in given.model_fields_set else MAX_PODS,
    }
    return stack.with_settings(KubernetesSettings(kuberay=given.model_copy(update=update)))


def _group(given: KubeRay, cluster: str, name: str) -> Group:
    own = given.groups.get(name, Group())
    role = HEAD if name == HEAD else "workers"
    account = {"spec": {"serviceAccountName": f"{cluster}-{role}"}}
    taint = Toleration(key=GROUP, value=name, effect=NO_SCHEDULE)
    return own.model_copy(
        update={
            "node_selector": {**own.node_selector, GROUP: name},
            "tolerations": (*own.tolerations, taint),
            "labels": {**own.labels, **USES_IDENTITY},
            "patch": patching.merged(own.patch, account),
        }
    )


def of(stack: Stack) -> tuple[AksPool, ...]:
    """The pools of a stack whose nodes all have a VM size: the head's first."""
    head = AksPool(
        name=HEAD,
        node_type=HEAD,
        group=HEAD,
        market="on-demand",
        size=size_for(stack.cluster.head_node),
        minimum=1,
        maximum=HEAD_NODES,
    )
    workers = (
        AksPool(
            name=_pool_name(node_type),
            node_type=node_type,
            group=group.name,
            market=market,
            size=size_for(group.worker_nodes),
            minimum=0,
            maximum=group.max_workers,
        )
        for group in stack.cluster.scaling_groups
        for node_type, market in _markets(group)
    )
    return head, *workers


def _markets(group: ScalingGroup) -> Iterator[tuple[str, NodeMarket]]:
    for node_type in group.node_types():
        spot = group.market != "on-demand" and node_type == group.name
        yield node_type, "spot" if spot else "on-demand"


def _pool_name(node_type: str) -> str:
    """The node type's own name if AKS takes that, otherwise its beginning and a hash of it."""
    letters = re.sub(r"[^a-z0-9]", "", node_type.lower()).lstrip("0123456789")
    if letters == node_type and len(letters) <= MAX_POOL_NAME and letters != SYSTEM_POOL:
        return letters
    digest = hashlib.sha256(node_type.encode()).hexdigest()[:5]
    return f"{letters[: MAX_POOL_NAME - len(digest) - 1] or 'p'}x{digest}"
