"""The resources that a plan makes, as the tree that Pulumi will show.

What `infra/` registers, said without Pulumi: a test runs that program and compares the two, so that
they cannot part.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from sunspot.targets.azure.plan import STATE_DISK_GIB, AzurePlan, Machine, Pool

COMPONENT = "sunspot:azure:"
NATIVE = "azure-native:"


@dataclass(frozen=True, kw_only=True)
class Resource:
    """One resource: its type and name as in its URN, what it is for, what is within it.

    `protected` says that `pulumi destroy` refuses to delete it.
    """

    type: str
    name: str
    detail: str = ""
    protected: bool = False
    children: tuple[Resource, ...] = ()

    @property
    def kind(self) -> str:
        """The last part of the type: `VirtualMachine`."""
        return self.type.rsplit(":", 1)[1]

    def walk(self) -> Iterator[Resource]:
        """This resource and all within it."""
        yield self
        for child in self.children:
            yield from child.walk()


def tree(plan: AzurePlan) -> Resource:
    """The cluster's component, with everything that it makes."""
    name = plan.cluster_name
    parts = [
        _native("resources:ResourceGroup", name, "holds everything below"),
        _network(name, plan),
        _component(
            "Identities",
            name,
            [
                _identity(f"{name}-head", "the head's"),
                _identity(f"{name}-workers", "the workers'"),
            ],
        ),
        _token(f"{name}-token"),
        _results(f"{name}-results", plan),
        *([] if plan.build is None else [_registry(f"{name}-registry", plan)]),
        _card(f"{name}-head", plan),
        _component(
            "Head",
            f"{name}-head",
            [_native("compute:VirtualMachine", f"{name}-head-vm", _head_shape(plan))],
        ),
        *(_pool(name, pool) for pool in plan.pools),
        *_rights_to_scale(name, plan),
        *([_bastion(f"{name}-bastion")] if plan.access.bastion else []),
    ]
    return _component("AzureRayCluster", name, parts, detail=plan.location)


def _network(name: str, plan: AzurePlan) -> Resource:
    rules = [
        _native("network:NetworkSecurityGroup", f"{name}-head-nsg", "who may reach the head"),
        _native("network:NetworkSecurityGroup", f"{name}-workers-nsg", "who may reach workers"),
    ]
    addresses = plan.addresses
    if addresses is None:
        return _component("Network", name, rules, detail="subnets of yours")
    subnets = [f"head {addresses.head_subnet}", f"workers {addresses.workers_subnet}"]
    if plan.access.bastion:
        subnets.append(f"Bastion {addresses.bastion_subnet}")
    own = [
        _public_address(f"{name}-nat-ip", "what the nodes come from"),
        _native("network:NatGateway", f"{name}-nat", "the way out"),
        _native("network:VirtualNetwork", f"{name}-vnet", ", ".join(subnets)),
    ]
    return _component("Network", name, [*rules, *own], detail=addresses.space)


def _token(name: str) -> Resource:
    return _component(
        "TokenVault",
        name,
        [
            # Its name is unique in the world, so Pulumi adds random characters.
            _native("keyvault:Vault", "sunspot"),
            _native("keyvault:Secret", f"{name}-secret", "Ray's token, random"),
            _role(f"{name}-head-reads", "head reads the token"),
            _role(f"{name}-workers-read", "workers read the token"),
        ],
    )


def _results(name: str, plan: AzurePlan) -> Resource:
    protect, days = plan.storage.protect, plan.storage.retention_days
    return _component(
        "Results",
        name,
        [
            _native("storage:StorageAccount", "sunspot", "no shared keys", protected=protect),
            _native("storage:BlobServiceProperties", f"{name}-blobs", "undelete"),
            _native(
                "storage:BlobContainer",
                f"{name}-container",
                "checkpoints and results",
                protected=protect,
            ),
            _native(
                "storage:ManagementPolicy",
                f"{name}-lifecycle",
                f"deletes blobs unchanged for {days} days",
                protected=protect,
            ),
            _role(f"{name}-head-writes", "head writes results"),
            _role(f"{name}-workers-write", "workers write results"),
        ],
    )


def _registry(name: str, plan: AzurePlan) -> Resource:
    context = "" if plan.build is None else f"built from {plan.build.context.name}"
    return _component(
        "Registry",
        name,
        [
            _native("containerregistry:Registry", "sunspot"),
            Resource(type="docker-build:index:Image", name=f"{name}-image", detail=context),
            _role(f"{name}-head-pulls", "head pulls the image"),
            _role(f"{name}-workers-pull", "workers pull the image"),
        ],
    )


def _card(name: str, plan: AzurePlan) -> Resource:
    public = plan.access.public_ip
    address = "an address of your subnet"
    if plan.addresses is not None:
        address = plan.addresses.head_address
    card = _native("network:NetworkInterface", f"{name}-nic", address)
    parts = [_public_address(f"{name}-ip", "the head's"), card] if public else [card]
    return _component("HeadCard", name, parts)


def _pool(name: str, pool: Pool) -> Resource:
    own = f"{name}-{pool.node_type}"
    detail = f"{workers(pool)} x {_shape(pool.machine, pool.market)}"
    scale_set = _native("compute:VirtualMachineScaleSet", f"{own}-vmss", detail)
    return _component("WorkerPool", own, [scale_set], detail=pool.node_type)


def _rights_to_scale(name: str, plan: AzurePlan) -> list[Resource]:
    elastic = [pool.node_type for pool in plan.pools if pool.elastic]
    if not elastic:
        return []
    own_rules = [_role(f"{name}-head-uses-rules", "head puts workers behind their rules")]
    return [
        _definition(f"{name}-role-scales", "changes scale sets"),
        _definition(f"{name}-role-looks", "lists machines"),
        *(_role(f"{name}-head-scales-{kind}", f"head scales {kind}") for kind in elastic),
        _role(f"{name}-head-joins-workers", "head puts workers in their subnet"),
        _role(f"{name}-head-gives-identity", "head gives workers their identity"),
        *(own_rules if plan.subnet_ids is not None else []),
        _role(f"{name}-head-looks", "head sees which workers there are"),
    ]


def _bastion(name: str) -> Resource:
    return _component(
        "Bastion",
        name,
        [
            _public_address(f"{name}-ip", "the Bastion's"),
            _native("network:BastionHost", f"{name}-host", "SSH without a public head"),
        ],
    )


def workers(pool: Pool) -> str:
    """How many workers a pool has: "2", or "0-4"."""
    if pool.minimum == pool.maximum:
        return str(pool.minimum)
    return f"{pool.minimum}-{pool.maximum}"


def short(size: str) -> str:
    """A size without the word that all sizes start with."""
    return size.removeprefix("Standard_")


def _head_shape(plan: AzurePlan) -> str:
    return f"{_shape(plan.head, 'on-demand')}, {STATE_DISK_GIB} GiB for state"


def _shape(machine: Machine, market: str) -> str:
    disk = "temporary disk" if machine.ephemeral_disk else f"{machine.disk_gib} GiB disk"
    return f"{short(machine.size.name)} {market}, {disk}"


def _component(kind: str, name: str, children: list[Resource], *, detail: str = "") -> Resource:
    return Resource(type=COMPONENT + kind, name=name, detail=detail, children=tuple(children))


def _native(kind: str, name: str, detail: str = "", *, protected: bool = False) -> Resource:
    return Resource(type=NATIVE + kind, name=name, detail=detail, protected=protected)


def _identity(name: str, detail: str) -> Resource:
    return _native("managedidentity:UserAssignedIdentity", name, detail)


def _role(name: str, detail: str) -> Resource:
    return _native("authorization:RoleAssignment", name, detail)


def _definition(name: str, detail: str) -> Resource:
    return _native("authorization:RoleDefinition", name, detail)


def _public_address(name: str, detail: str) -> Resource:
    return _native("network:PublicIPAddress", name, detail)
