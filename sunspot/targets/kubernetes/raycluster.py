"""A stack as the resources that KubeRay makes a cluster from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sunspot.errors import UsageError
from sunspot.node.autoscaler_config import ON_DEMAND_PRIORITY, SPOT_PRIORITY
from sunspot.problems import hint
from sunspot.ray import images
from sunspot.ray.start import ALLOCATE_TIMEOUT, JOIN_TIMEOUT_S
from sunspot.spec import RayNodeConfig, ScalingGroup
from sunspot.spec_values import HEAD
from sunspot.stack import Stack
from sunspot.stack_problems import wrong
from sunspot.targets.kubernetes import gcs_state, patching, pods
from sunspot.targets.kubernetes.access import DEFAULT_NAMESPACE
from sunspot.targets.kubernetes.gcs_state import StateVolume
from sunspot.targets.kubernetes.pods import Pod
from sunspot.targets.kubernetes.settings import (
    KEY,
    TARGET,
    FaultTolerance,
    KubeRay,
    KubernetesSettings,
)
from sunspot.targets.kubernetes.values import cluster_name

MANAGED_BY = {"app.kubernetes.io/managed-by": "sunspot"}

# The versions of KubeRay that the fields came with which are used here: authOptions and the others;
# gcsFaultToleranceOptions with a backend, and the priority of a group.
KUBERAY, NEWER_KUBERAY = (1, 6), (1, 7)


@dataclass(frozen=True, kw_only=True)
class Names:
    """What a stack's cluster is called in Kubernetes."""

    cluster: str
    namespace: str
    token_secret: str

    @classmethod
    def of_cluster(cls, cluster: str, namespace: str, token_secret: str | None = None) -> Names:
        """The names of a RayCluster of that name, with the usual Secret if none is given."""
        secret = token_secret or f"{cluster}-token"
        return cls(cluster=cluster, namespace=namespace, token_secret=secret)

    @property
    def head_service(self) -> str:
        """The service that leads to the head, by KubeRay's rule."""
        return f"{self.cluster}-head-svc"

    def metadata(self, name: str) -> dict[str, Any]:
        """The metadata of a resource of that name."""
        return {"name": name, "namespace": self.namespace, "labels": dict(MANAGED_BY)}


def settings(stack: Stack) -> KubeRay:
    """What a stack file says of Kubernetes."""
    return KubernetesSettings.of(stack).kuberay


def with_settings(stack: Stack, **changes: Any) -> Stack:
    """The stack with other settings for Kubernetes than its file has."""
    settings = KubernetesSettings.of(stack)
    kuberay = settings.kuberay.model_copy(update=changes)
    return stack.with_settings(settings.model_copy(update={"kuberay": kuberay}))


def names(stack: Stack) -> Names:
    """What the stack's cluster is called.

    Raises:
        UsageError: the stack's name is not one for a RayCluster, and the settings have no other.
    """
    given = settings(stack)
    try:
        name = given.name or cluster_name(stack.name)
    except UsageError as error:
        raise wrong(
            f"stack {stack.name} on {TARGET}", [f"config > {KEY} > name: missing, and {error}"]
        ) from None
    return Names.of_cluster(name, given.namespace or DEFAULT_NAMESPACE, given.token_secret)


def state_volume(stack: Stack) -> StateVolume | None:
    """Where the cluster's GCS keeps its state; None if it does not. Raises as `names` does."""
    asked = settings(stack).gcs_fault_tolerance
    if asked is None:
        return None
    return StateVolume.of(names(stack).cluster, asked, _ray_version(stack))


def make(stack: Stack) -> list[dict[str, Any]]:
    """The resources of the stack's cluster, in the order in which they should be applied.

    Raises:
        UsageError: the stack is wrong for Kubernetes; the message has every problem.
    """
    called, given = names(stack), settings(stack)
    volume, asked = state_volume(stack), given.gcs_fault_tolerance
    made = [_cluster(called, _spec(stack, pods_of(stack)))]
    if given.head_disruption_budget:
        made.append(_budget(called))
    if volume is not None and asked is not None and volume.is_own:
        made.append(gcs_state.claim(called.metadata(volume.claim), asked))
    return made


def inner_spec(stack: Stack) -> dict[str, Any]:
    """The spec of a RayCluster that KubeRay makes by itself, for a RayService or a RayJob.

    KubeRay names that cluster, and a RayService may have two of them for a while: the volume of
    the GCS's state is KubeRay's as well.

    Raises:
        UsageError: as `make`.
    """
    spec = _spec(stack, [replace(pod, state=None) for pod in pods_of(stack)])
    asked = settings(stack).gcs_fault_tolerance
    return spec if asked is None else {**spec, "gcsFaultToleranceOptions": _fault_tolerance(asked)}


def oldest_kuberay(spec: Mapping[str, Any]) -> tuple[int, int]:
    """The first version of KubeRay that has every field of a RayCluster's spec."""
    newer = "gcsFaultToleranceOptions" in spec or any(
        "priority" in group for group in spec["workerGroupSpecs"]
    )
    return NEWER_KUBERAY if newer else KUBERAY


def _spec(stack: Stack, of_pods: Sequence[Pod]) -> dict[str, Any]:
    """The spec of a RayCluster of these pods. Raises as `make` does."""
    called, given, cluster = names(stack), settings(stack), stack.cluster
    problems = [*_of_groups(stack), *_of_images(stack), *_of_sizes(stack)]
    if not problems:
        problems = [text for pod in of_pods for text in _of_patches(pod, given, called)]
    if problems:
        raise wrong(f"stack {stack.name} on {TARGET}", problems)
    head, *workers = of_pods
    groups = {group.name: group for group in cluster.scaling_groups}
    spec: dict[str, Any] = {
        "rayVersion": _ray_version(stack),
        "authOptions": {"mode": "token", "secretName": called.token_secret},
        "enableInTreeAutoscaling": cluster.requires_autoscale(),
    }
    if cluster.requires_autoscale():
        spec["autoscalerOptions"] = _autoscaler(stack)
    spec["headGroupSpec"] = {
        "serviceType": "ClusterIP",
        **_ray(head, given, called),
    }
    spec["workerGroupSpecs"] = [
        _worker_group(pod, groups[pod.group], given, called) for pod in workers
    ]
    return spec


def _cluster(called: Names, spec: dict[str, Any]) -> dict[str, Any]:
    return {
        "apiVersion": "ray.io/v1",
        "kind": "RayCluster",
        "metadata": called.metadata(called.cluster),
        "spec": spec,
    }


def _autoscaler(stack: Stack) -> dict[str, Any]:
    config = stack.cluster.autoscaler_config
    asked: dict[str, Any] = {}
    if config is not None:
        asked["resources"] = pods.amounts(config.cpu, config.memory_gb)
    if any(group.market == "spot-with-fallback" for group in stack.cluster.scaling_groups):
        # Ray turns to the twin only then, by default after an hour (autoscaler v2, config.py).
        asked["env"] = [{"name": ALLOCATE_TIMEOUT, "value": f"{JOIN_TIMEOUT_S:g}"}]
    return {
        "version": "v2",
        "idleTimeoutSeconds": settings(stack).idle_timeout_s,
        "imagePullPolicy": "IfNotPresent",
        "securityContext": pods.LEAST_PRIVILEGE,
        **asked,
    }


def _fault_tolerance(asked: FaultTolerance) -> dict[str, Any]:
    storage = {
        "claimName": asked.claim,
        "size": asked.size,
        "storageClassName": asked.storage_class,
        "deletionPolicy": "Retain" if asked.keep else "DeleteWithCluster",
    }
    return {
        "backend": "rocksdb",
        "storage": {key: value for key, value in storage.items() if value is not None},
    }


def _worker_group(pod: Pod, group: ScalingGroup, given: KubeRay, called: Names) -> dict[str, Any]:
    is_twin = pod.node_type != group.name
    made: dict[str, Any] = {"groupName": pod.node_type}
    if not group.is_autoscaled():
        # Of an elastic group it is the autoscaler's: applying the manifest again must not undo it.
        made["replicas"] = group.min_workers
    made["minReplicas"] = 0 if is_twin else group.min_workers
    made["maxReplicas"] = group.max_workers
    if group.market == "spot-with-fallback":
        made["priority"] = ON_DEMAND_PRIORITY if is_twin else SPOT_PRIORITY
    own = given.groups.get(group.name)
    if group.is_autoscaled() and own is not None and own.idle_timeout_s is not None:
        made["idleTimeoutSeconds"] = own.idle_timeout_s
    return made | _ray(pod, given, called)


def _ray(pod: Pod, given: KubeRay, called: Names) -> dict[str, Any]:
    """What the head's group and a worker group have in common."""
    return {
        "labels": pods.labels(pod),
        "rayStartParams": pods.parameters(pod),
        "template": _patched(pod, given, called),
    }


def _patched(pod: Pod, given: KubeRay, called: Names) -> dict[str, Any]:
    made = pods.template(pod, given, called.token_secret)
    for _, patch in _patches(pod, given):
        made = patching.merged(made, patch)
    return made


def _patches(pod: Pod, given: KubeRay) -> Iterator[tuple[str, dict[str, Any]]]:
    """The user's patches of a pod's template, each with its key."""
    yield f"{KEY} > patch", given.patch
    if pod.group in given.groups:
        yield f"{KEY} > groups > {pod.group} > patch", given.groups[pod.group].patch


def _budget(called: Names) -> dict[str, Any]:
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": called.metadata(f"{called.cluster}-head"),
        "spec": {
            "minAvailable": 1,
            # A head that is not ready has nothing to lose.
            "unhealthyPodEvictionPolicy": "AlwaysAllow",
            "selector": {
                "matchLabels": {"ray.io/cluster": called.cluster, "ray.io/node-type": HEAD}
            },
        },
    }


def pods_of(stack: Stack) -> list[Pod]:
    """The pods, the head's first; a group that is spot-with-fallback has two kinds."""
    given, cluster = settings(stack), stack.cluster
    autoscaler = cluster.autoscaler_config if cluster.requires_autoscale() else None
    state = state_volume(stack)
    made = [
        Pod(
            group=HEAD,
            node_type=HEAD,
            market="on-demand",
            node=cluster.head_node,
            share=pods.share(cluster.head_node, given, autoscaler),
            image=_image(stack, cluster.head_node),
            autoscaled=autoscaler is not None,
            state=state,
        )
    ]
    for group in cluster.scaling_groups:
        for node_type in group.node_types():
            spot = group.market != "on-demand" and node_type == group.name
            made.append(
                Pod(
                    group=group.name,
                    node_type=node_type,
                    market="spot" if spot else "on-demand",
                    node=group.worker_nodes,
                    share=pods.share(group.worker_nodes, given),
                    image=_image(stack, group.worker_nodes),
                    head_away_s=None if state is None else gcs_state.HEAD_AWAY_S,
                )
            )
    return made


def _ray_version(stack: Stack) -> str:
    return stack.cluster.ray_version.removeprefix("v")


def _image(stack: Stack, node: RayNodeConfig) -> str:
    return images.reference(stack, gpus=node.gpu_count > 0) or ""


# What is wrong with a stack


def _of_groups(stack: Stack) -> Iterator[str]:
    known = [HEAD, *(group.name for group in stack.cluster.scaling_groups)]
    for name in settings(stack).groups:
        if name not in known:
            yield (
                f"config > {KEY} > groups > {name}: the cluster has no group {name!r}"
                f"{hint(name, known)}: name one of {', '.join(known)}"
            )


def _of_images(stack: Stack) -> Iterator[str]:
    nodes = [stack.cluster.head_node, *(one.worker_nodes for one in stack.cluster.scaling_groups)]
    given = settings(stack)
    if stack.image.context is not None:
        yield (
            "config > sunspot:image > context: nothing is built here: build and push the image, "
            "and give it as reference"
        )
    elif (
        stack.image.reference is None
        and not given.gpu_key.startswith("nvidia.")
        and any(node.gpu_count for node in nodes)
    ):
        yield (
            f"config > sunspot:image > reference: missing, and Ray's own image has no software for "
            f"{given.gpu_key}: give an image that has"
        )


def _of_sizes(stack: Stack) -> Iterator[str]:
    cluster, given = stack.cluster, settings(stack)
    autoscaler = cluster.autoscaler_config if cluster.requires_autoscale() else None
    shares = {"head_node": pods.share(cluster.head_node, given, autoscaler)}
    for at, group in enumerate(cluster.scaling_groups):
        shares[f"scaling_groups[{at}] > worker_nodes"] = pods.share(group.worker_nodes, given)
    for key, one in shares.items():
        if problem := one.problem():
            beside = ", beside the autoscaler" if key == "head_node" and autoscaler else ""
            yield f"config > sunspot:cluster > {key}{beside}: {problem}"


def _of_patches(pod: Pod, given: KubeRay, called: Names) -> Iterator[str]:
    template = pods.template(pod, given, called.token_secret)
    for key, patch in _patches(pod, given):
        for path in patching.touched(template, patching.merged(template, patch)):
            yield f"config > {key}: {path} is set by Sunspot: leave it out"
