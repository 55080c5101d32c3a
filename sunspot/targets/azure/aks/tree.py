"""The resources of a stack on AKS, declared once; see `sunspot.targets.azure.tree`."""

from __future__ import annotations

from sunspot.targets.azure.aks.plan import SYSTEM_NODES, AksPlan
from sunspot.targets.azure.aks.pools import AksPool
from sunspot.targets.azure.tree import (
    Resource,
    component,
    identities,
    native,
    results,
    role,
    short,
    span,
)

KUBERNETES = "kubernetes:"
ROLES = ("head", "workers")
_OF = {"head": "the head's", "workers": "the workers'"}

# Of a resource of Kubernetes: its type by its kind.
_TYPES = {
    "Namespace": "core/v1:Namespace",
    "PersistentVolumeClaim": "core/v1:PersistentVolumeClaim",
    "Secret": "core/v1:Secret",
    "ServiceAccount": "core/v1:ServiceAccount",
    "DaemonSet": "apps/v1:DaemonSet",
    "Release": "helm.sh/v3:Release",
    "RayCluster": "ray.io/v1:RayCluster",
    "PodDisruptionBudget": "policy/v1:PodDisruptionBudget",
}


def tree(plan: AksPlan) -> Resource:
    """The stack's component, with everything in it."""
    name = plan.cluster_name
    own_subnet = plan.subnet_id is not None
    parts = [
        native(name, "group", "resources:ResourceGroup", "holds everything below", name=name),
        identities(name),
        results(f"{name}-results", plan.storage),
        *([_control_plane_identity(name)] if own_subnet else []),
        *([role(name, "joins", "AKS puts nodes in your subnet")] if own_subnet else []),
        native(name, "aks", "containerservice:ManagedCluster", _cluster(plan)),
        *(_pool(name, pool) for pool in plan.pools),
        *(_federated(name, one) for one in ROLES),
        _workload(name, plan),
    ]
    return component("cluster", "AksRayCluster", name, parts, plan.location)


def pool_key(pool: AksPool) -> str:
    """The key of a pool."""
    return f"pool-{pool.node_type}"


def _cluster(plan: AksPlan) -> str:
    return (
        f"{plan.aks.tier} tier; {SYSTEM_NODES} x {short(plan.system_size.name)} on-demand for "
        "Kubernetes' own pods"
    )


def _pool(name: str, pool: AksPool) -> Resource:
    disk = "temporary disk" if pool.ephemeral_disk else "managed disk"
    nodes = span(pool.minimum, pool.maximum)
    detail = f"{nodes} x {short(pool.size.name)} {pool.market}, {disk}"
    return native(name, pool_key(pool), "containerservice:AgentPool", detail)


def _control_plane_identity(name: str) -> Resource:
    kind = "managedidentity:UserAssignedIdentity"
    return native(name, "control-plane", kind, "the control plane's")


def _federated(name: str, one: str) -> Resource:
    kind = "managedidentity:FederatedIdentityCredential"
    return native(name, f"{one}-federated", kind, f"the pods of the {one} may use its identity")


def _workload(name: str, plan: AksPlan) -> Resource:
    owned = plan.names.namespace != "default"
    parts = [
        Resource(key="provider", type="pulumi:providers:kubernetes", name=f"{name}-kubernetes"),
        *([_object(name, "namespace", "Namespace", plan.names.namespace)] if owned else []),
        _object(name, "operator", "Release", "KubeRay's operator"),
        *([_object(name, "gpus", "DaemonSet", "NVIDIA's device plugin")] if plan.has_gpus else []),
        _object(name, "token", "Secret", "Ray's token, random"),
        *(_object(name, f"{one}-account", "ServiceAccount", _OF[one]) for one in ROLES),
        *(_object(name, made["kind"], made["kind"], "") for made in plan.manifest),
    ]
    return component("workload", "RayOnKubernetes", name, parts, plan.names.namespace)


def _object(name: str, key: str, kind: str, detail: str) -> Resource:
    return Resource(
        key=key, type=KUBERNETES + _TYPES[kind], name=f"{name}-{key.lower()}", detail=detail
    )
