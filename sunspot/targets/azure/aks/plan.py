"""The plan of a stack on AKS: its manifest and its names, all checked. No Pulumi."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from sunspot.catalog import VmSize, get
from sunspot.errors import UsageError
from sunspot.idle import refuse_idle
from sunspot.spec import RayClusterConfig, size_for
from sunspot.spec_values import HEAD
from sunspot.stack import Stack
from sunspot.targets.azure import aks_settings
from sunspot.targets.azure.aks import pools
from sunspot.targets.azure.aks.pools import AksPool
from sunspot.targets.azure.aks_settings import Aks
from sunspot.targets.azure.fit import fit
from sunspot.targets.azure.plan import PROJECT, location_of
from sunspot.targets.azure.settings import Access, AzureSettings, Storage
from sunspot.targets.azure.sizes import check_counts, check_regions, check_sizes
from sunspot.targets.kubernetes import gcs_state, quantities, raycluster, records
from sunspot.targets.kubernetes.raycluster import Names
from sunspot.targets.kubernetes.settings import KEY, NVIDIA_KEY, TARGET

SYSTEM_NODES = 2
# A cluster's DNS prefix has at most 54 characters (the API's reference of ManagedCluster).
MAX_CLUSTER_NAME = 54
STORAGE_VARIABLE = "SUNSPOT_STORAGE"

# Where Ray's autoscaler has scaled, the list of worker groups is its own, and an edit would be
# refused as a conflict (pulumi.com, "Managing Resources with Server-Side Apply"). A lower number of
# replicas takes no worker away: KubeRay leaves that to the autoscaler.
FORCE = "pulumi.com/patchForce"

_INFINIBAND = "whose drivers Sunspot does not install on AKS's nodes"


@dataclass(frozen=True, kw_only=True)
class AksPlan:
    """Everything that a stack makes with AKS, checked.

    `subnet_id` is None for a network that AKS makes. `max_pods` is of a node of the `pools`.
    `manifest` are the resources that KubeRay makes the cluster from, in the order in which they are
    applied.
    """

    stack: str
    cluster_name: str
    cluster: RayClusterConfig
    location: str
    tags: dict[str, str]
    aks: Aks
    storage: Storage
    subnet_id: str | None
    system_size: VmSize
    pools: tuple[AksPool, ...]
    max_pods: int
    names: Names
    manifest: tuple[dict[str, Any], ...]

    @property
    def has_gpus(self) -> bool:
        """Whether any of its nodes has GPUs."""
        return any(pool.has_gpus for pool in self.pools)

    @property
    def keeps_head(self) -> bool:
        """Whether the head's pod refuses to be evicted."""
        return any(made["kind"] == "PodDisruptionBudget" for made in self.manifest)

    @property
    def volume_gib(self) -> int:
        """The size of the disk that is made for the GCS's state; 0 if there is none."""
        claims = (made["spec"] for made in self.manifest if made["kind"] == gcs_state.CLAIM)
        asked = (quantities.number(spec["resources"]["requests"]["storage"]) for spec in claims)
        return sum(math.ceil(size / quantities.GIB) for size in asked)

    @property
    def sizes(self) -> tuple[VmSize, ...]:
        """The sizes of its machines, each once."""
        sizes = (self.system_size, *(pool.size for pool in self.pools))
        return tuple(dict.fromkeys(sizes))

    def service_account(self, role: str) -> str:
        """The service account of the pods of a role, "head" or "workers"."""
        return f"{self.names.cluster}-{role}"


def most_nodes(made: Iterable[AksPool]) -> int:
    """How many nodes the cluster has with all pools full."""
    return SYSTEM_NODES + sum(pool.maximum for pool in made)


def is_aks(stack: Stack) -> bool:
    """Whether `pulumi up` makes an AKS cluster of the stack, and not virtual machines."""
    return stack.target == TARGET


def plan(stack: Stack) -> AksPlan:
    """The plan of a stack.

    Raises:
        UsageError: the stack is wrong for AKS; the message names every problem.
    """
    azure = AzureSettings.of(stack)
    sized = _sized(stack)
    _check(sized)
    placed = pools.placed(sized)
    manifest = raycluster.make(placed)
    # By these, all commands find the cluster, and `sunspot down` leaves it to Pulumi.
    manifest[0]["metadata"]["annotations"] = {
        records.STACK_ANNOTATION: records.as_annotation(placed),
        records.PULUMI_ANNOTATION: stack.name,
        FORCE: "true",
    }
    subnets = azure.network.subnet_ids
    return AksPlan(
        stack=stack.name,
        cluster_name=_cluster_name(stack),
        cluster=sized.cluster,
        location=location_of(stack),
        tags={"project": PROJECT, "stack": stack.name, "owner": azure.owner, **azure.tags},
        aks=azure.aks,
        storage=azure.storage,
        subnet_id=None if subnets is None else subnets.workers,
        system_size=_system_size(stack),
        pools=pools.of(sized),
        max_pods=raycluster.settings(placed).max_pods,
        names=raycluster.names(placed),
        manifest=tuple(manifest),
    )


def with_some_ranges(stack: Stack) -> Stack:
    """The stack with an address that may reach the API server, if it has none: for a preview."""
    azure = AzureSettings.of(stack)
    some = azure.aks.model_copy(update={"authorized_ip_ranges": ("203.0.113.7/32",)})
    return stack.with_settings(azure.model_copy(update={"aks": some}))


def reaches_nobody(stack: Stack) -> str | None:
    """Why no address may reach the API server, and what to do; None if the stack says who may."""
    aks = _aks(stack)
    if aks.private or aks.authorized_ip_ranges:
        return None
    return (
        f"config > {aks_settings.KEY} > authorized_ip_ranges: missing: the API server is never "
        "open to the internet, so list the addresses that you and Pulumi connect from, such as "
        "[203.0.113.7/32] (`curl -4 https://ifconfig.me` shows yours), or set private: true"
    )


# What is checked


def _check(stack: Stack) -> None:
    """Computes every part that may fail, so that all problems are reported at once."""
    parts: tuple[Callable[[], object], ...] = (
        lambda: refuse_idle(stack.idle, stack.target),
        lambda: location_of(stack),
        lambda: check_sizes(stack, infiniband=_INFINIBAND),
        lambda: check_regions(stack, {"system_vm_size": _aks(stack).system_vm_size}),
        lambda: check_counts(stack),
        lambda: _cluster_name(stack),
        lambda: _system_size(stack),
        lambda: _refuse(_of_settings(stack)),
        lambda: _refuse(_of_sizes(stack)),
        lambda: _refuse(_without_nodes(stack)),
    )
    problems: list[str] = []
    for part in parts:
        try:
            part()
        except UsageError as error:
            problems.append(str(error))
    if problems:
        raise UsageError("\n  ".join([f"stack {stack.name} on AKS:", *problems]))


def _aks(stack: Stack) -> Aks:
    return AzureSettings.of(stack).aks


def _refuse(problems: Iterator[str]) -> None:
    if found := list(problems):
        raise UsageError("\n  ".join(found))


def _of_settings(stack: Stack) -> Iterator[str]:
    azure, given = AzureSettings.of(stack), raycluster.settings(stack)
    if missing := reaches_nobody(stack):
        yield missing
    if azure.aks.private and azure.network.subnet_ids is None:
        yield (
            f"config > {aks_settings.KEY} > private: Pulumi must reach the API server while it "
            "makes the cluster: give sunspot:network > subnet_ids of a network that it runs in, or "
            "authorized_ip_ranges instead"
        )
    if azure.access != Access():
        yield (
            "config > sunspot:access: is about the head's virtual machine, which AKS does not "
            f"have: leave it out; {aks_settings.KEY} says who may reach the API server"
        )
    if stack.image.vm_image is not None:
        yield (
            "config > sunspot:image > vm_image: AKS chooses the image of its nodes: leave it out"
        )
    if given.service_account is not None:
        yield (
            f"config > {KEY} > service_account: the stack makes the service accounts, whose "
            "identities may write to its storage: leave it out"
        )
    most = most_nodes(pools.of(stack))
    if most > azure.aks.most_nodes:
        yield (
            f"config > {aks_settings.KEY} > pod_cidr: {azure.aks.pod_cidr} has addresses for the "
            f"pods of {azure.aks.most_nodes} nodes, a /24 each, and with all groups full there are "
            f"{most}: give a /{24 - (most - 1).bit_length()}, or lower max_workers"
        )


def _of_sizes(stack: Stack) -> Iterator[str]:
    """Machines that AKS, or what runs on it here, cannot use."""
    gpu_key = raycluster.settings(stack).gpu_key
    if gpu_key != NVIDIA_KEY:
        yield (
            f"config > {KEY} > gpu_key: {gpu_key}: on AKS the stack installs NVIDIA's device "
            f"plugin, which calls a GPU {NVIDIA_KEY}: leave it out"
        )
    nodes = {HEAD: stack.cluster.head_node}
    nodes |= {group.name: group.worker_nodes for group in stack.cluster.scaling_groups}
    for name, node in nodes.items():
        size = size_for(node)
        # Microsoft, "Quotas, virtual machine size restrictions, and region availability in AKS".
        if size.vcpus < 2:
            yield (
                f"config > sunspot:cluster: {name} has {size.name} with {size.vcpus:g} vCPU, and "
                "AKS takes only sizes with 2 or more: choose another size"
            )
        if size.has_amd_gpus:
            yield (
                f"config > sunspot:cluster: {name} has {size.name} with AMD GPUs, and Sunspot "
                "installs only NVIDIA's device plugin on AKS: choose another size, or virtual "
                "machines (sunspot:target: azure)"
            )


def _without_nodes(stack: Stack) -> Iterator[str]:
    """The selectors of pods that no node of their own pool has."""
    spec = raycluster.make(pools.placed(stack))[0]["spec"]
    templates = {one["groupName"]: one["template"] for one in spec["workerGroupSpecs"]}
    templates[HEAD] = spec["headGroupSpec"]["template"]
    for pool in pools.of(stack):
        wanted = templates[pool.node_type]["spec"].get("nodeSelector") or {}
        for key, value in wanted.items():
            if not pool.may_have(key, value):
                yield (
                    f"config > {KEY}: the pods of {pool.node_type} ask for nodes with the label "
                    f"{key}: {value}, which those of their own pool do not have: leave it out, "
                    "since each group's pods run on its own pool"
                )


def _cluster_name(stack: Stack) -> str:
    name = f"{PROJECT}-{stack.name}"
    if len(name) > MAX_CLUSTER_NAME or not re.fullmatch(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?", name):
        raise UsageError(
            f"stack name {stack.name!r} cannot name an AKS cluster: use at most "
            f"{MAX_CLUSTER_NAME - len(PROJECT) - 1} lower-case letters, digits and hyphens, no "
            "hyphen last"
        )
    return name


def _system_size(stack: Stack) -> VmSize:
    name = _aks(stack).system_vm_size
    try:
        size = get(name)
    except UsageError as error:
        raise UsageError(f"config > {aks_settings.KEY} > system_vm_size: {error}") from error
    # Microsoft's "Use system node pools in AKS" takes none of the B series.
    is_burstable = size.name.startswith("Standard_B")
    if size.vcpus < 4 or size.gpu_count or size.is_arm or is_burstable:
        raise UsageError(
            f"config > {aks_settings.KEY} > system_vm_size: {size.name} has {size.vcpus:g} vCPUs"
            f"{' and GPUs' if size.gpu_count else ''}: AKS's own pods need an x64 size with at "
            f"least 4 and no GPU, not of the B series, such as {aks_settings.SYSTEM_SIZE}"
        )
    return size


# What is made


def _sized(stack: Stack) -> Stack:
    """The stack with a VM size for each node."""
    problems: list[str] = []
    cluster = fit(stack.cluster, problems)
    if problems:
        lines = [f"config > sunspot:cluster > {problem}" for problem in problems]
        raise UsageError("\n  ".join([f"stack {stack.name} on AKS:", *lines]))
    return stack.with_cluster(cluster)
