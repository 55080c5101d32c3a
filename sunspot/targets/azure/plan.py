"""The plan of a stack on Azure: every machine, address and name, all checked.

Plain values, no Pulumi: the program creates resources from it, and a preview needs nothing else.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from sunspot.catalog import VmSize
from sunspot.errors import UsageError
from sunspot.idle import Idle
from sunspot.ray import images
from sunspot.ray.images import ImageBuild
from sunspot.ray.start import NodeMarket
from sunspot.spec import RayClusterConfig, ScalingGroup
from sunspot.spec_values import HEAD
from sunspot.stack import Stack
from sunspot.targets.azure import addresses, machine, ssh_key
from sunspot.targets.azure.addresses import Addresses
from sunspot.targets.azure.images import Copy, check_ray
from sunspot.targets.azure.machine import Machine
from sunspot.targets.azure.settings import (
    TARGET,
    Access,
    AzureSettings,
    Storage,
    SubnetIds,
)
from sunspot.targets.azure.sizes import check_counts, check_regions, check_sizes

PROJECT = "sunspot"

# A Flexible scale set names its machines `{set}_{8 characters}`; such a name has at most 44.
# Source: Microsoft's "Understand names and instance IDs for ... Scale Set VMs", 05/2026.
MAX_MACHINE_NAME = 44
MAX_SCALE_SET_NAME = MAX_MACHINE_NAME - 9
MAX_VM_NAME = 64
_CLUSTER_NAME = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?")

# The head's second disk, a P4: the cluster's state takes megabytes, its metrics at most 4 GB (the
# limit in cloud_init's prometheus.sh).
STATE_DISK_GIB = 32


@dataclass(frozen=True, kw_only=True)
class Pool:
    """The workers of one group and market: one scale set, one Ray node type.

    `elastic` says that Ray's autoscaler sets the number of workers.
    `twin` is the node type that replaces this one while Azure refuses its machines.
    """

    node_type: str
    group: str
    market: NodeMarket
    machine: Machine
    scale_set: str
    minimum: int
    maximum: int
    elastic: bool
    twin: str | None = None

    @property
    def starts_with(self) -> int:
        """How many machines Pulumi creates.

        0 of an elastic group, whose minimum the autoscaler creates: on a cluster that runs, both
        would. And one spot machine that Azure refuses would fail Pulumi's whole creation.
        """
        return 0 if self.elastic else self.minimum


@dataclass(frozen=True, kw_only=True)
class AzurePlan:
    """Everything that a stack creates on Azure, checked.

    `addresses` is None if `subnet_ids` name the user's own subnets. `build` is None if the
    machines' images are references. `copies` are the images that the stack's registry gets.
    `orphan_after_s` is how long a worker may be without its head before it deletes itself; None if
    it may not: the stack says so, or its roles are Azure's own, which all allow far more.
    """

    stack: str
    cluster_name: str
    cluster: RayClusterConfig
    location: str
    tags: dict[str, str]
    access: Access
    ssh_public_key: str
    addresses: Addresses | None
    subnet_ids: SubnetIds | None
    storage: Storage
    orphan_after_s: int | None
    build: ImageBuild | None
    copies: tuple[Copy, ...]
    head: Machine
    pools: tuple[Pool, ...]
    idle: Idle | None = None

    def head_resizes(self, pool: Pool) -> bool:
        """Whether the head changes the pool's number of workers: by itself, or as it is idle."""
        return pool.elastic or (self.idle is not None and self.idle.action != "warn")

    @property
    def head_stops_itself(self) -> bool:
        """Whether the head is deallocated when nothing uses the cluster."""
        return self.idle is not None and self.idle.action == "stop-head"

    @property
    def head_name(self) -> str:
        """The name of the head's VM."""
        return scale_set_of(self.cluster_name, HEAD)

    @property
    def autoscaled(self) -> bool:
        """Whether the head has Ray's autoscaler: some group is not fixed."""
        return any(pool.elastic for pool in self.pools)

    @property
    def workers_network(self) -> str:
        """Where the workers are: the address block of their subnet, or a subnet's ARM id."""
        if self.subnet_ids is not None:
            return self.subnet_ids.workers
        return "" if self.addresses is None else self.addresses.workers_subnet

    @property
    def vm_image_id(self) -> str | None:
        """The gallery's image that all machines are made from, without its version."""
        image = self.head.vm_image
        return None if image is None else image.definition_id

    @property
    def has_registry(self) -> bool:
        """Whether the stack has a registry of its own."""
        return self.build is not None or bool(self.copies)

    @property
    def sizes(self) -> tuple[VmSize, ...]:
        """The sizes of its machines, each once, the head's first."""
        machines = (self.head, *(pool.machine for pool in self.pools))
        return tuple(dict.fromkeys(machine.size for machine in machines))


def plan(stack: Stack, folder: Path) -> AzurePlan:
    """The plan of a stack whose relative paths start in `folder`.

    Raises:
        UsageError: the stack is wrong; the message names every problem.
    """
    stack = stack.for_target(TARGET)
    azure = AzureSettings.of(stack)
    _check(stack, folder)
    named = _cluster_name(stack)
    return AzurePlan(
        stack=stack.name,
        cluster_name=named,
        cluster=stack.cluster,
        location=location_of(stack),
        tags={
            "project": PROJECT,
            "stack": stack.name,
            "owner": azure.owner,
            **azure.tags,
        },
        access=azure.access,
        ssh_public_key=ssh_key.of(stack, folder),
        addresses=_addresses(stack),
        subnet_ids=azure.network.subnet_ids,
        storage=azure.storage,
        orphan_after_s=azure.orphan_after * 60 or None if azure.access.custom_roles else None,
        build=images.build(stack, folder),
        copies=machine.copies(stack),
        head=machine.of(stack, stack.cluster.head_node, keeps_disk=True),
        pools=tuple(
            _pool(stack, group, market, node_type, named)
            for group in stack.cluster.scaling_groups
            for node_type, market in _node_types(group)
        ),
        idle=stack.idle,
    )


def _check(stack: Stack, folder: Path) -> None:
    """Computes every part that may fail, so that all problems are reported at once."""
    problems: list[str] = []
    parts: tuple[Callable[[], object], ...] = (
        lambda: location_of(stack),
        lambda: check_sizes(stack),
        lambda: machine.vm_image_of(stack),
        lambda: check_regions(stack),
        lambda: _cluster_name(stack),
        lambda: ssh_key.of(stack, folder),
        lambda: _addresses(stack),
        lambda: images.build(stack, folder),
        lambda: machine.copies(stack),
        lambda: check_ray(stack.image.reference, stack.cluster.ray_version),
        lambda: check_counts(stack),
        lambda: _check_bastion(stack),
    )
    for part in parts:
        try:
            part()
        except UsageError as error:
            problems.append(str(error))
    if problems:
        raise UsageError("\n  ".join([f"stack {stack.name} on azure:", *problems]))


def location_of(stack: Stack) -> str:
    """The region that the stack names.

    Raises:
        UsageError: it names none.
    """
    azure = AzureSettings.of(stack)
    if azure.location is None:
        raise UsageError(
            "config > azure-native:location: missing: name an Azure region "
            f"(`pulumi config set azure-native:location uksouth -s {stack.name}`)"
        )
    return azure.location


def cluster_name(stack: str) -> str:
    """What the names of a stack's resources begin with."""
    return f"{PROJECT}-{stack}"


def _cluster_name(stack: Stack) -> str:
    name = cluster_name(stack.name)
    if not _CLUSTER_NAME.fullmatch(name):
        raise UsageError(
            f"stack name {stack.name!r} cannot name machines: use lower-case letters, digits and "
            "hyphens, no hyphen last"
        )
    head = scale_set_of(name, HEAD)
    if len(head) > MAX_VM_NAME:
        raise UsageError(
            f"the head's name {head!r} has {len(head)} characters, Azure allows {MAX_VM_NAME}: "
            "shorten the stack's name"
        )
    node_types = [kind for group in stack.cluster.scaling_groups for kind in group.node_types()]
    longest = max((scale_set_of(name, kind) for kind in node_types), key=len, default="")
    if len(longest) > MAX_SCALE_SET_NAME:
        raise UsageError(
            f"the scale set's name {longest!r} has {len(longest)} characters, at most "
            f"{MAX_SCALE_SET_NAME} fit (Azure appends 9, and allows its machines "
            f"{MAX_MACHINE_NAME}): shorten the stack's or the group's name"
        )
    return name


def scale_set_of(cluster_name: str, node_type: str) -> str:
    """The name of a node type's scale set, and of the head's VM."""
    return f"{cluster_name}-{node_type}"


def _addresses(stack: Stack) -> Addresses | None:
    network = AzureSettings.of(stack).network
    if network.subnet_ids is not None:
        return None
    return addresses.within(network.address_space, workers=_most_workers(stack))


def _most_workers(stack: Stack) -> int:
    # Both node types of a group that falls back may be full while one takes over from the other.
    return sum(
        group.max_workers * len(group.node_types()) for group in stack.cluster.scaling_groups
    )


def _check_bastion(stack: Stack) -> None:
    azure = AzureSettings.of(stack)
    if azure.access.bastion and azure.network.subnet_ids is not None:
        raise UsageError(
            "config > sunspot:access > bastion: is only created in the stack's own network: "
            "use your network's Bastion, or leave subnet_ids out"
        )


def _node_types(group: ScalingGroup) -> tuple[tuple[str, NodeMarket], ...]:
    """The group's node types, each with the market that its machines are bought on."""
    names = group.node_types()
    if group.market == "spot-with-fallback":
        spot, on_demand = names
        return (spot, "spot"), (on_demand, "on-demand")
    return ((names[0], group.market),)


def _pool(
    stack: Stack, group: ScalingGroup, market: NodeMarket, node_type: str, cluster: str
) -> Pool:
    is_twin = node_type != group.name
    falls_back = market == "spot" and group.market == "spot-with-fallback"
    return Pool(
        node_type=node_type,
        group=group.name,
        market=market,
        machine=machine.of(stack, group.worker_nodes, keeps_disk=False),
        scale_set=scale_set_of(cluster, node_type),
        minimum=0 if is_twin else group.min_workers,
        maximum=group.max_workers,
        elastic=group.is_autoscaled(),
        twin=group.node_types()[1] if falls_back else None,
    )
