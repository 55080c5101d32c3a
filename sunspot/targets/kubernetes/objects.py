"""What Kubernetes has of one cluster: its RayCluster, its pods, and what is said of them."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from sunspot.spec_values import HEAD
from sunspot.targets.kubernetes.api import RAY, Api, Object, path
from sunspot.targets.kubernetes.pods import RAY_CONTAINER
from sunspot.targets.kubernetes.raycluster import Names

# KubeRay's labels of what it makes (ray-operator/controllers/ray/utils/constant.go, 1.6).
CLUSTER_LABEL, TYPE_LABEL, GROUP_LABEL = "ray.io/cluster", "ray.io/node-type", "ray.io/group"

# A container that waits for one of these does not get further by itself (kubelet/images/types.go
# and kuberuntime, Kubernetes 1.34).
IMAGE_REASONS = ("InvalidImageName", "ErrImageNeverPull", "ImageInspectError")

# With one of these the kubelet tries again (kubernetes.io, "Images"), which helps where a registry
# or the node has too many pulls to do, and not against what the words below say.
PULL_REASONS = ("ErrImagePull", "ImagePullBackOff")
_ABSENT = ("not found", "manifest unknown", "does not exist", "no match for platform")
_REFUSED = ("unauthorized", "authentication required", "denied", "403 forbidden", "no such host")

# A new node is refused by Azure's registry for a minute or two, until its right is known there
# (Azure/AKS#4052, kubernetes/kubernetes#92326).
REFUSED_PATIENCE_S = 180.0
# A registry or a node with too many pulls; the kubelet says the same while it tries again, and a
# large image takes minutes.
PULL_PATIENCE_S = 600.0

CRASH_REASON = "CrashLoopBackOff"

# The API server's words, and KubeRay's own reason where the autoscaler's account is the user's.
REFUSALS = ("forbidden", "exceeded quota", "is invalid", "AutoscalerServiceAccountNotFound")

# The fields of a pod that change its host name (kubernetes.io, "Pod hostname").
_HOST_NAMES = ("hostNetwork", "hostname", "hostnameOverride", "setHostnameAsFQDN")


def pull_patience_s(reason: str, message: str) -> float:
    """How long a container may wait for its image so, in seconds: 0 if it never gets it."""
    if reason not in PULL_REASONS:
        return 0.0 if reason in IMAGE_REASONS else math.inf
    said = re.sub(r'"[^"]*"', "", message).lower()  # without the image's name
    if any(word in said for word in _ABSENT):
        return 0.0
    return REFUSED_PATIENCE_S if any(word in said for word in _REFUSED) else PULL_PATIENCE_S


@dataclass(frozen=True)
class Pod:
    """One pod, as the API has it."""

    object: Object

    @property
    def name(self) -> str:
        return self.object["metadata"]["name"]

    @property
    def group(self) -> str:
        """Its Ray node type; "head"."""
        labels = self.object["metadata"].get("labels") or {}
        return HEAD if labels.get(TYPE_LABEL) == HEAD else labels.get(GROUP_LABEL, "")

    @property
    def is_head(self) -> bool:
        return self.group == HEAD

    @property
    def node_name(self) -> str:
        """Its name in Ray (pods.py)."""
        return HEAD if self.is_head else self.name

    @property
    def gives_its_name(self) -> bool:
        """Whether its node in Ray has its name: a worker's host name is that, unless patched."""
        patched = any(key in self.object["spec"] for key in _HOST_NAMES)
        return not (self.is_head or patched)

    def is_node(self, member: Mapping[str, Any]) -> bool:
        """Whether it is a member of Ray's. An old node's address may be a new pod's."""
        if self.gives_its_name:
            return member["node_name"] == self.node_name
        return self.is_head == member["is_head_node"] and member["node_ip"] in self.addresses

    @property
    def addresses(self) -> set[str]:
        """Its IP addresses; none before it has a node."""
        status = self.object.get("status") or {}
        return {one["ip"] for one in status.get("podIPs") or ()}

    @property
    def created(self) -> str:
        """When it was created, as a text that sorts."""
        return self.object["metadata"].get("creationTimestamp") or ""

    @property
    def phase(self) -> str:
        return (self.object.get("status") or {}).get("phase") or "Pending"

    @property
    def is_ending(self) -> bool:
        return "deletionTimestamp" in self.object["metadata"]

    @property
    def runs(self) -> bool:
        return self.phase == "Running" and not self.is_ending

    @property
    def waits_for_node(self) -> str:
        """Why no node has it yet, in the scheduler's words; "" if one has."""
        for one in (self.object.get("status") or {}).get("conditions") or ():
            if one["type"] == "PodScheduled" and one["status"] == "False":
                return one.get("message") or one.get("reason") or "no node yet"
        return ""

    def containers(self) -> Iterable[Object]:
        """The states of its containers, of those that begin first too."""
        status = self.object.get("status") or {}
        return [*(status.get("initContainerStatuses") or ()), *self.ray_and_beside()]

    def ray_and_beside(self) -> list[Object]:
        return (self.object.get("status") or {}).get("containerStatuses") or []

    @property
    def is_ready(self) -> bool:
        """Whether all its containers are."""
        beside = self.ray_and_beside()
        return self.runs and bool(beside) and all(one.get("ready") for one in beside)

    @property
    def restarts(self) -> int:
        """How often one of its containers was started again."""
        return sum(one.get("restartCount") or 0 for one in self.containers())

    def waiting(self) -> Iterable[tuple[str, str, str]]:
        """The containers that wait: their names, and Kubernetes' reason and message."""
        for one in self.containers():
            if state := (one.get("state") or {}).get("waiting"):
                yield one["name"], state.get("reason") or "", state.get("message") or ""

    def crashed_container(self) -> str | None:
        """The container by which it failed; None if nothing crashed.

        A pod that Kubernetes itself ended, for want of room for instance, says so in its reason.
        """
        status = self.object.get("status") or {}
        if self.phase != "Failed" or status.get("reason"):
            return None
        for one in self.containers():
            ended = (one.get("state") or {}).get("terminated") or {}
            if ended.get("exitCode"):
                return one["name"]
        return None

    def state(self) -> str:
        """What it does, in a word or two: why it waits, or its phase, such as "Running"."""
        return "Terminating" if self.is_ending else self.why() or self.phase

    def why(self) -> str:
        """What it waits for, in one line; "" if nothing."""
        if message := self.waits_for_node:
            return message
        for container, reason, message in self.waiting():
            if reason not in ("ContainerCreating", "PodInitializing"):
                return f"container {container}: {reason}" + (f": {message}" if message else "")
        return ""


@dataclass(frozen=True)
class Cluster:
    """The objects of one cluster in one place."""

    api: Api
    names: Names

    @property
    def where(self) -> str:
        """The path of the RayCluster."""
        return path(RAY, "rayclusters", self.names.namespace, self.names.cluster)

    @property
    def secret(self) -> str:
        """The path of the token's Secret."""
        return path("v1", "secrets", self.names.namespace, self.names.token_secret)

    def found(self) -> Object | None:
        """The RayCluster; None if there is none."""
        return self.api.find(self.where)

    def standing(self) -> Object | None:
        """The RayCluster; None if there is none, or one that is being deleted."""
        found = self.found()
        return None if found is None or "deletionTimestamp" in found["metadata"] else found

    def pods(self) -> list[Pod]:
        """Its pods, the head first, then by their age."""
        listed = self.api.list(
            path("v1", "pods", self.names.namespace),
            labelSelector=f"{CLUSTER_LABEL}={self.names.cluster}",
        )
        made = [Pod(one) for one in listed]
        return sorted(made, key=lambda pod: (not pod.is_head, pod.created, pod.name))

    def head(self) -> Pod | None:
        """The head's pod, if one runs."""
        return next((pod for pod in self.pods() if pod.is_head and pod.runs), None)

    def log(self, pod: str, *, lines: int | None = None, previous: bool = False) -> str:
        """What Ray's container in a pod has printed."""
        return self.api.text(
            self.log_path(pod),
            container=RAY_CONTAINER,
            tailLines=lines,
            previous="true" if previous else None,
        )

    def log_path(self, pod: str) -> str:
        return path("v1", "pods", self.names.namespace, pod) + "/log"

    def refusals(self, ray_cluster: Object) -> dict[str, str]:
        """As `warnings`, of what KubeRay was refused: by a quota or a policy, or no account."""
        said = self.warnings(ray_cluster)
        return {text: at for text, at in said.items() if any(one in text for one in REFUSALS)}

    def warnings(self, about: Object) -> dict[str, str]:
        """The warnings that were recorded about an object, the latest last, and when last.

        By its uid: events of an object that had its name before are kept for an hour.
        """
        listed: list[dict[str, Any]] = self.api.list(
            path("v1", "events", self.names.namespace),
            fieldSelector=f"involvedObject.uid={about['metadata']['uid']},type=Warning",
        )
        said = [(_last(one), f"{one['reason']}: {one['message']}") for one in listed]
        return {" ".join(text.split()): at for at, text in sorted(said)}


def _last(event: Object) -> str:
    """When it was recorded last."""
    return event.get("lastTimestamp") or event.get("eventTime") or ""
