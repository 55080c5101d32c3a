"""The resources of a plan, declared once: which there are, their names, purposes and protection.

The components of `infra/` create each of them, by its key, under its name here; a preview shows
them without Pulumi. A test checks that the program creates exactly these.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from sunspot.ray.images import ImageBuild
from sunspot.targets.azure.machine import Machine
from sunspot.targets.azure.plan import STATE_DISK_GIB, AzurePlan, Pool
from sunspot.targets.azure.settings import Storage

# The first part of every component's type. A type never changes, since URNs contain it.
COMPONENT = "sunspot:azure:"
NATIVE = "azure-native:"
# The key of the role assignment by which the head may use the stack's own VM image.
READS_IMAGE = "head-reads-image"
# Those of the role, and its assignment, by which the head may deallocate its VM.
ROLE_STOPPER, STOPS = "role-stopper", "head-stops-itself"
# For resources whose names must be globally unique: Pulumi adds 8 random characters, and Azure
# accepts at most 24 letters and digits.
UNIQUE = "sunspot"


@dataclass(frozen=True, kw_only=True)
class Resource:
    """One resource: its type and name as in its URN, its purpose, its children.

    `infra/` finds it by `key` within its parent. `protected` says that plain Pulumi refuses to
    replace or delete it.
    """

    key: str
    type: str
    name: str
    detail: str = ""
    protected: bool = False
    children: tuple[Resource, ...] = ()

    @property
    def kind(self) -> str:
        """The last part of the type: `VirtualMachine`."""
        return self.type.rsplit(":", 1)[1]

    def get(self, key: str) -> Resource | None:
        """The child with this key; None if the plan has none."""
        return next((child for child in self.children if child.key == key), None)

    def __getitem__(self, key: str) -> Resource:
        child = self.get(key)
        if child is None:
            raise KeyError(f"{self.kind} {self.name} has no {key!r} in {__name__}")
        return child

    def walk(self) -> Iterator[Resource]:
        """This resource and all within it."""
        yield self
        for child in self.children:
            yield from child.walk()


def tree(plan: AzurePlan) -> Resource:
    """The cluster's component, with everything in it."""
    name = plan.cluster_name
    parts = [
        native(name, "group", "resources:ResourceGroup", "holds everything below", name=name),
        _network(name, plan),
        identities(name),
        _token(f"{name}-token"),
        results(f"{name}-results", plan.storage),
        *([_registry(f"{name}-registry", plan)] if plan.has_registry else []),
        _nic(f"{name}-head", plan),
        _head(f"{name}-head", plan),
        *(_pool(f"{name}-{pool.node_type}", pool) for pool in plan.pools),
        *_rights_to_scale(name, plan),
        *_rights_to_leave(name, plan),
        *_rights_to_stop(name, plan),
        *([_bastion(f"{name}-bastion")] if plan.access.bastion else []),
    ]
    return component("cluster", "AzureRayCluster", name, parts, plan.location)


def pool_key(pool: Pool) -> str:
    """The key of a pool's component."""
    return f"pool-{pool.node_type}"


def scales_key(pool: Pool) -> str:
    """The key of the role assignment by which the head may change a pool's scale set."""
    return f"head-scales-{pool.node_type}"


def leaves_key(pool: Pool) -> str:
    """The key of the role assignment by which a pool's workers may leave their scale set."""
    return f"workers-leave-{pool.node_type}"


def short(size: str) -> str:
    """A size's name without the prefix that all sizes have."""
    return size.removeprefix("Standard_")


def span(minimum: int, maximum: int) -> str:
    """A number of machines: "2", or "0-4"."""
    return str(minimum) if minimum == maximum else f"{minimum}-{maximum}"


def _network(name: str, plan: AzurePlan) -> Resource:
    parts = [
        native(name, "head-nsg", "network:NetworkSecurityGroup", "who may reach the head"),
        native(name, "workers-nsg", "network:NetworkSecurityGroup", "who may reach workers"),
    ]
    addresses = plan.addresses
    if addresses is None:
        return component("network", "Network", name, parts, "your subnets")
    subnets = f"head {addresses.head_subnet}, workers {addresses.workers_subnet}"
    if plan.access.bastion:
        subnets += f", Bastion {addresses.bastion_subnet}"
    parts += [
        _public_address(name, "nat-ip", "the address that nodes connect from"),
        native(name, "nat", "network:NatGateway", "the nodes' outbound access"),
        native(name, "vnet", "network:VirtualNetwork", subnets),
    ]
    return component("network", "Network", name, parts, addresses.space)


def identities(name: str) -> Resource:
    """The two identities."""
    parts = [
        native(name, "head", "managedidentity:UserAssignedIdentity", "the head's"),
        native(name, "workers", "managedidentity:UserAssignedIdentity", "the workers'"),
    ]
    return component("identities", "Identities", name, parts)


def _token(name: str) -> Resource:
    parts = [
        native(name, "vault", "keyvault:Vault", name=UNIQUE),
        native(name, "secret", "keyvault:Secret", "Ray's token, random"),
        role(name, "head-reads", "head reads the token"),
        role(name, "workers-read", "workers read the token"),
    ]
    return component("token", "TokenVault", name, parts)


def results(name: str, storage: Storage) -> Resource:
    """Where results go."""
    keep = storage.protect
    kind = "hierarchical, no shared keys"
    account = native(name, "account", "storage:StorageAccount", kind, name=UNIQUE, protected=keep)
    container = native(
        name, "container", "storage:BlobContainer", "checkpoints and results", protected=keep
    )
    rule = f"deletes blobs unchanged for {storage.retention_days} days"
    parts = [
        account,
        native(name, "blobs", "storage:BlobServiceProperties", "undelete"),
        container,
        # Protected too: without its rule, the blobs would be kept forever.
        native(name, "lifecycle", "storage:ManagementPolicy", rule, protected=keep),
        role(name, "head-writes", "head writes results"),
        role(name, "workers-write", "workers write results"),
    ]
    return component("results", "Results", name, parts)


def _registry(name: str, plan: AzurePlan) -> Resource:
    copied = ", ".join(dict.fromkeys(copy.repository for copy in plan.copies))
    parts = [
        native(name, "registry", "containerregistry:Registry", name=UNIQUE),
        *([] if plan.build is None else [_image(name, plan.build)]),
        *([native(name, "copies", "containerregistry:TaskRun", copied)] if copied else []),
        role(name, "head-pulls", "head pulls images"),
        role(name, "workers-pull", "workers pull images"),
    ]
    return component("registry", "Registry", name, parts)


def _image(name: str, build: ImageBuild) -> Resource:
    return Resource(
        key="image",
        type="docker-build:index:Image",
        name=f"{name}-image",
        detail=f"built from {build.context.name}",
    )


def _nic(name: str, plan: AzurePlan) -> Resource:
    own = plan.addresses
    address = "an address of your subnet" if own is None else own.head_address
    parts = [native(name, "nic", "network:NetworkInterface", address)]
    if plan.access.public_ip:
        parts.insert(0, _public_address(name, "ip", "the head's"))
    return component("nic", "HeadNic", name, parts)


def _head(name: str, plan: AzurePlan) -> Resource:
    detail = f"{STATE_DISK_GIB} GiB, outlives the head's machine"
    # `sunspot down` lifts the protection.
    disk = native(name, "state", "compute:Disk", detail, protected=True)
    shape = _shape(plan.head, "on-demand")
    vm = native(name, "vm", "compute:VirtualMachine", shape, protected=True)
    return component("head", "Head", name, [disk, vm])


def _pool(name: str, pool: Pool) -> Resource:
    detail = f"{span(pool.minimum, pool.maximum)} x {_shape(pool.machine, pool.market)}"
    scale_set = native(name, "vmss", "compute:VirtualMachineScaleSet", detail)
    return component(pool_key(pool), "WorkerPool", name, [scale_set], pool.node_type)


def _rights_to_scale(name: str, plan: AzurePlan) -> list[Resource]:
    resized = [pool for pool in plan.pools if plan.head_resizes(pool)]
    if not resized:
        return []
    manages = role(name, "head-manages-machines", "head creates and deletes workers")
    gives = role(name, "head-gives-identity", "head gives workers their identity")
    joins = role(name, "head-joins-workers", "head puts workers in their subnet")
    rules = role(name, "head-uses-rules", "head puts workers behind their rules")
    image = [] if plan.vm_image_id is None else [_reads_image(name)]
    has_own_network = plan.subnet_ids is None
    if not plan.access.custom_roles:
        # The role on the group covers the sets, the rules, and a network of the cluster's own.
        return [manages, gives, *([] if has_own_network else [joins]), *image]
    return [
        native(name, "role-scaler", "authorization:RoleDefinition", "changes scale sets"),
        native(name, "role-machines", "authorization:RoleDefinition", "creates machines"),
        *(role(name, scales_key(pool), f"head scales {pool.node_type}") for pool in resized),
        joins,
        gives,
        *([] if has_own_network else [rules]),
        manages,
        *image,
    ]


def _rights_to_leave(name: str, plan: AzurePlan) -> list[Resource]:
    if plan.orphan_after_s is None or not plan.pools:
        return []
    after = f"after {plan.orphan_after_s // 60} minutes without the head"
    return [
        native(name, "role-leaver", "authorization:RoleDefinition", "leaves a scale set"),
        native(name, "role-leaving", "authorization:RoleDefinition", "deletes machines"),
        *(
            role(name, leaves_key(pool), f"{pool.node_type} deletes itself {after}")
            for pool in plan.pools
        ),
        role(name, "workers-delete-machines", "workers delete machines, NICs, disks"),
    ]


def _rights_to_stop(name: str, plan: AzurePlan) -> list[Resource]:
    if not plan.head_stops_itself:
        return []
    stops = role(name, STOPS, "head deallocates itself when idle")
    if not plan.access.custom_roles:
        return [stops]
    kind = "authorization:RoleDefinition"
    return [native(name, ROLE_STOPPER, kind, "deallocates one machine"), stops]


def _reads_image(name: str) -> Resource:
    return role(name, READS_IMAGE, "head makes workers from the VM image")


def _bastion(name: str) -> Resource:
    parts = [
        _public_address(name, "ip", "the Bastion's"),
        native(name, "host", "network:BastionHost", "SSH without a public head"),
    ]
    return component("bastion", "Bastion", name, parts)


def _shape(machine: Machine, market: str) -> str:
    disk = "temporary disk" if machine.ephemeral_disk else f"{machine.disk_gib} GiB disk"
    return f"{short(machine.size.name)} {market}, {disk}"


def component(
    key: str, kind: str, name: str, children: list[Resource], detail: str = ""
) -> Resource:
    """A component of ours."""
    return Resource(
        key=key, type=COMPONENT + kind, name=name, detail=detail, children=tuple(children)
    )


def native(
    parent: str,
    key: str,
    kind: str,
    detail: str = "",
    *,
    name: str | None = None,
    protected: bool = False,
) -> Resource:
    """A resource of Azure, by default named after its parent and its key."""
    return Resource(
        key=key,
        type=NATIVE + kind,
        name=name or f"{parent}-{key}",
        detail=detail,
        protected=protected,
    )


def role(parent: str, key: str, detail: str) -> Resource:
    """A role assignment."""
    return native(parent, key, "authorization:RoleAssignment", detail)


def _public_address(parent: str, key: str, detail: str) -> Resource:
    return native(parent, key, "network:PublicIPAddress", detail)
