"""A stack file's settings for Kubernetes: where pods run, and what they have besides Ray."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from sunspot.errors import UsageError
from sunspot.node.autoscaler_config import IDLE_TIMEOUT_MINUTES
from sunspot.settings import Settings
from sunspot.spec_values import Config, Count, Number, Text
from sunspot.targets.kubernetes import patching
from sunspot.targets.kubernetes.values import (
    ClusterName,
    GpuKey,
    LabelKey,
    LabelValue,
    Namespace,
    ObjectName,
    OwnLabelKey,
    Quantity,
)

# This target's name in sunspot/registry.py.
TARGET = "kubernetes"
KEY = "sunspot:kubernetes"
NVIDIA_KEY = "nvidia.com/gpu"

# AKS's default with Azure CNI overlay, and the most that it allows.
MAX_PODS = 250

# The notice of an eviction on Azure, and Kubernetes' own default.
DEFAULT_GRACE_PERIOD_S = 30

Patch = Annotated[dict[Text, Any], AfterValidator(patching.check)]


class Toleration(Config, frozen=True):
    """A taint that pods tolerate, in Kubernetes' own words."""

    key: LabelKey | None = Field(default=None, description="the taint's key; none for every taint")
    operator: Literal["Equal", "Exists"] = Field(
        default="Equal", description="whether the taint's value counts"
    )
    value: LabelValue | None = Field(default=None, description="the taint's value")
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = Field(
        default=None, description="the taint's effect; none for every effect"
    )

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.operator == "Exists" and self.value is not None:
            raise UsageError(
                f"value {self.value!r} does not count with operator Exists: leave it out, or write "
                "operator: Equal"
            )
        if self.operator == "Equal" and (self.key is None or self.value is None):
            raise UsageError(
                "a key and a value are needed with operator Equal: give both, or write operator: "
                "Exists"
            )
        return self


class Placement(Config, frozen=True):
    """The nodes that pods run on, and what else the pods are marked with."""

    node_selector: dict[LabelKey, LabelValue] = Field(
        default={}, description="labels that a node must have"
    )
    tolerations: tuple[Toleration, ...] = Field(default=(), description="taints to tolerate")
    labels: dict[OwnLabelKey, LabelValue] = Field(default={}, description="labels of the pods")
    annotations: dict[LabelKey, Text] = Field(default={}, description="annotations of the pods")

    def plus(self, other: Placement) -> Placement:
        """Both; where they contradict each other, the other one."""
        return Placement(
            node_selector=self.node_selector | other.node_selector,
            tolerations=tuple(dict.fromkeys((*self.tolerations, *other.tolerations))),
            labels=self.labels | other.labels,
            annotations=self.annotations | other.annotations,
        )


class Group(Placement, frozen=True):
    """What only one group has, in addition to what the settings give all."""

    idle_timeout_s: Count | None = Field(
        default=None, ge=0, description="seconds until an idle worker of the group is terminated"
    )
    patch: Patch = Field(
        default={}, description="strategic merge patch of the group's pod template"
    )


class FaultTolerance(Config, frozen=True):
    """Where the GCS keeps its state (RocksDB), so that it outlives the head's pod."""

    size: Quantity | None = Field(
        default=None, description="size of the volume that is made, such as 20Gi; by default 10Gi"
    )
    storage_class: ObjectName | None = Field(
        default=None, description="storage class of that volume"
    )
    claim: ObjectName | None = Field(
        default=None, description="an existing claim of a volume to use instead"
    )
    keep: bool = Field(
        default=False,
        strict=True,
        description="whether the volume outlives the cluster; the next one of its name goes on",
    )

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.claim is not None and (self.size or self.storage_class):
            raise UsageError(
                f"claim {self.claim!r} is of a volume that exists: leave out size and storage_class"
            )
        return self


# What Azure's managed Kubernetes gives the nodes of a spot pool
# (learn.microsoft.com/azure/aks/spot-node-pool).
_AKS_SPOT = "kubernetes.azure.com/scalesetpriority"
SPOT_OF_AKS = Placement(
    node_selector={_AKS_SPOT: "spot"},
    tolerations=(Toleration(key=_AKS_SPOT, value="spot", effect="NoSchedule"),),
)
# The taint that its pages give pools with GPUs (learn.microsoft.com/azure/aks/use-nvidia-gpu).
GPUS_OF_AKS = Placement(tolerations=(Toleration(key="sku", value="gpu", effect="NoSchedule"),))


class KubeRay(Config, frozen=True):
    """What the cluster is in Kubernetes, besides Ray."""

    name: ClusterName | None = Field(
        default=None, description="name of the RayCluster, by default the stack's"
    )
    context: Text | None = Field(
        default=None, description="context of the kubeconfig, by default the current one"
    )
    namespace: Namespace | None = Field(
        default=None,
        description="namespace of everything, by default the context's; default in a manifest",
    )
    token_secret: ObjectName | None = Field(
        default=None,
        description="Secret whose key auth_token has the cluster's token, by default NAME-token",
    )
    service_account: ObjectName | None = Field(
        default=None, description="service account of the pods; it must exist"
    )
    image_pull_secrets: tuple[ObjectName, ...] = Field(
        default=(), description="Secrets with the passwords of registries; they must exist"
    )
    gpu_key: GpuKey = Field(default=NVIDIA_KEY, description="what the device plugin calls a GPU")
    cpu_nodes: Placement = Field(
        default=Placement(), description="where pods without GPUs run, and what marks them"
    )
    gpu_nodes: Placement = Field(
        default=GPUS_OF_AKS, description="where pods with GPUs run, and what marks them"
    )
    spot_nodes: Placement = Field(
        default=SPOT_OF_AKS, description="where pods of spot groups run, in addition"
    )
    groups: dict[Text, Group] = Field(
        default={}, description="what only one group has, by the group's name or `head`"
    )
    idle_timeout_s: Count = Field(
        default=IDLE_TIMEOUT_MINUTES * 60,
        ge=0,
        description="seconds until an idle worker above its group's minimum is terminated",
    )
    grace_period_s: Count = Field(
        default=DEFAULT_GRACE_PERIOD_S,
        ge=10,
        le=3600,
        description="seconds that a pod has to drain and stop",
    )
    shared_memory: Quantity | None = Field(
        default=None, description="size of /dev/shm, by default half of a pod's memory"
    )
    reserved_cpu: Number | None = Field(
        default=None,
        ge=0,
        description="CPUs of a vm_size that its pod leaves to the machine's own services, by "
        "default what AKS keeps: 0.5 and a hundredth of its vCPUs",
    )
    reserved_memory: Number | None = Field(
        default=None,
        ge=0,
        lt=1,
        description="share of the memory of a vm_size that its pod leaves to them, by default what "
        "AKS keeps of a node with that many max_pods, and its own pods ask for",
    )
    max_pods: Count = Field(
        default=MAX_PODS,
        ge=10,
        le=MAX_PODS,
        description="pods that a node of a vm_size may have, by which AKS reserves its memory",
    )
    head_disruption_budget: bool = Field(
        default=True,
        strict=True,
        description="whether the head's pod refuses evictions, as `kubectl drain` asks for",
    )
    gcs_fault_tolerance: FaultTolerance | None = Field(
        default=None, description="keeps the GCS's state; without it, a new head begins anew"
    )
    user_group: Text = Field(
        default="sunspot-users", description="group that `sunspot manifest --rbac` gives the Role"
    )
    patch: Patch = Field(
        default={}, description="strategic merge patch of every pod template, for what is left"
    )


class KubernetesSettings(Settings, frozen=True):
    """The settings that only Kubernetes has."""

    KEYS: ClassVar[Mapping[str, str]] = {KEY: "kuberay"}

    kuberay: KubeRay = Field(default=KubeRay(), description="the cluster in Kubernetes")
