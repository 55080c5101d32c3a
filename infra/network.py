"""The cluster's network: subnets without a way in, and one way out."""

from collections.abc import Sequence
from dataclasses import dataclass

import pulumi
from pulumi_azure_native import network

from infra.place import PACKAGE, Place
from sunspot.ray import ports
from sunspot.targets.azure.plan import Addresses
from sunspot.targets.azure.settings import SubnetIds

HEAD_SUBNET = "head"
WORKERS_SUBNET = "workers"
# Azure finds a Bastion's subnet by this name.
BASTION_SUBNET = "AzureBastionSubnet"

# Priorities of the rules; Azure's own start at 65000 and let every peered network in.
FIRST_SSH_PRIORITY = 100
FIRST_RAY_PRIORITY = 200
PRIORITY_STEP = 10
DENY_ALL_PRIORITY = 4096

Prefixes = pulumi.Input[Sequence[pulumi.Input[str]]]


@dataclass(frozen=True, kw_only=True)
class NetworkArgs:
    """What a network is made of: `addresses` of its own, or `subnet_ids` that exist."""

    place: Place
    addresses: Addresses | None
    subnet_ids: SubnetIds | None
    ssh_cidrs: tuple[str, ...]
    bastion: bool


class Network(pulumi.ComponentResource):
    """Two subnets and the rules that guard them.

    In a network of its own the rules stand at the subnets. In subnets of the user's they must
    stand at the machines' own network cards: `card_rules` says by role which group those take, and
    is empty otherwise. `head_address` is None where the head must take what the subnet gives.
    """

    head_subnet_id: pulumi.Output[str]
    workers_subnet_id: pulumi.Output[str]
    bastion_subnet_id: pulumi.Output[str] | None
    head_address: str | None
    card_rules: dict[ports.Role, pulumi.Output[str]]

    def __init__(
        self, name: str, args: NetworkArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__(f"{PACKAGE}:azure:Network", name, None, opts)
        if args.subnet_ids is not None:
            self._adopt(name, args, args.subnet_ids)
        elif args.addresses is not None:
            self._create(name, args, args.addresses)
        else:
            raise ValueError("a network needs addresses, or subnets that exist")
        self.register_outputs(
            {"headSubnetId": self.head_subnet_id, "workersSubnetId": self.workers_subnet_id}
        )

    def _create(self, name: str, args: NetworkArgs, addresses: Addresses) -> None:
        place = args.place
        nodes = [addresses.head_subnet, addresses.workers_subnet]
        operators = [*args.ssh_cidrs, *([addresses.bastion_subnet] if args.bastion else [])]
        head_rules = _create_rules(f"{name}-head", "head", nodes, operators, place, parent=self)
        worker_rules = _create_rules(
            f"{name}-workers",
            "worker",
            nodes,
            # A worker is reached by way of the head.
            [*operators, addresses.head_subnet],
            place,
            parent=self,
        )
        gateway = _create_gateway(name, place, parent=self)
        subnets = [
            _subnet(HEAD_SUBNET, addresses.head_subnet, head_rules, gateway),
            _subnet(WORKERS_SUBNET, addresses.workers_subnet, worker_rules, gateway),
        ]
        if args.bastion:
            subnets.append(
                network.SubnetArgs(name=BASTION_SUBNET, address_prefix=addresses.bastion_subnet)
            )
        # The subnets stand inside the network's own body: made one by one in parallel, Azure
        # refuses all but the first.
        vnet = network.VirtualNetwork(
            f"{name}-vnet",
            resource_group_name=place.resource_group,
            location=place.location,
            address_space=network.AddressSpaceArgs(address_prefixes=[addresses.space]),
            subnets=subnets,
            tags=place.tags,
            opts=pulumi.ResourceOptions(parent=self),
        )
        self.head_subnet_id = _subnet_id(vnet, HEAD_SUBNET)
        self.workers_subnet_id = _subnet_id(vnet, WORKERS_SUBNET)
        self.bastion_subnet_id = _subnet_id(vnet, BASTION_SUBNET) if args.bastion else None
        self.head_address = addresses.head_address
        self.card_rules = {}

    def _adopt(self, name: str, args: NetworkArgs, subnet_ids: SubnetIds) -> None:
        head, workers = _prefixes(subnet_ids.head), _prefixes(subnet_ids.workers)
        nodes = pulumi.Output.all(head, workers).apply(
            lambda both: sorted({prefix for prefixes in both for prefix in prefixes})
        )
        operators = list(args.ssh_cidrs)
        jump = head.apply(lambda prefixes: [*operators, *prefixes])
        head_rules = _create_rules(
            f"{name}-head",
            "head",
            nodes,
            operators,
            args.place,
            parent=self,
        )
        worker_rules = _create_rules(
            f"{name}-workers", "worker", nodes, jump, args.place, parent=self
        )
        self.head_subnet_id = pulumi.Output.from_input(subnet_ids.head)
        self.workers_subnet_id = pulumi.Output.from_input(subnet_ids.workers)
        self.bastion_subnet_id = None
        self.head_address = None
        self.card_rules = {"head": head_rules.id, "worker": worker_rules.id}


def _create_rules(
    name: str,
    role: ports.Role,
    nodes: Prefixes,
    operators: Prefixes,
    place: Place,
    *,
    parent: pulumi.Resource,
) -> network.NetworkSecurityGroup:
    return network.NetworkSecurityGroup(
        f"{name}-nsg",
        resource_group_name=place.resource_group,
        location=place.location,
        security_rules=security_rules(role, nodes, operators),
        tags=place.tags,
        opts=pulumi.ResourceOptions(parent=parent),
    )


def security_rules(
    role: ports.Role, nodes: Prefixes, operators: Prefixes
) -> list[network.SecurityRuleArgs]:
    """The inbound rules of a role: its ports from `ports.PORTS`, then nothing else.

    `nodes` are the address blocks of the cluster's nodes, `operators` those that may connect by
    SSH; where that list is empty there is no such rule, as Azure takes none without a source.
    """
    rules: list[network.SecurityRuleArgs] = []
    priorities = {"operator": FIRST_SSH_PRIORITY, "cluster": FIRST_RAY_PRIORITY}
    for port in ports.of(role):
        if port.reach == "nobody" or (port.reach == "operator" and operators == []):
            continue
        # The scrapers of metrics that we allow are nodes of the cluster.
        kind = "operator" if port.reach == "operator" else "cluster"
        rules.append(_allow(port, operators if kind == "operator" else nodes, priorities[kind]))
        priorities[kind] += PRIORITY_STEP
    return [*rules, _deny_all()]


def _allow(port: ports.Port, sources: Prefixes, priority: int) -> network.SecurityRuleArgs:
    return network.SecurityRuleArgs(
        name=f"allow-{port.name}",
        description=port.purpose,
        priority=priority,
        direction=network.SecurityRuleDirection.INBOUND,
        access=network.SecurityRuleAccess.ALLOW,
        protocol=network.SecurityRuleProtocol.TCP,
        source_address_prefixes=sources,
        source_port_range="*",
        destination_address_prefix="*",
        destination_port_range=port.range,
    )


def _deny_all() -> network.SecurityRuleArgs:
    return network.SecurityRuleArgs(
        name="deny-all",
        description="stands before Azure's own rule that lets all peered networks in",
        priority=DENY_ALL_PRIORITY,
        direction=network.SecurityRuleDirection.INBOUND,
        access=network.SecurityRuleAccess.DENY,
        protocol=network.SecurityRuleProtocol.ASTERISK,
        source_address_prefix="*",
        source_port_range="*",
        destination_address_prefix="*",
        destination_port_range="*",
    )


def _create_gateway(name: str, place: Place, *, parent: pulumi.Resource) -> network.NatGateway:
    address = create_public_address(f"{name}-nat-ip", place, parent=parent)
    return network.NatGateway(
        f"{name}-nat",
        resource_group_name=place.resource_group,
        location=place.location,
        sku=network.NatGatewaySkuArgs(name=network.NatGatewaySkuName.STANDARD),
        public_ip_addresses=[network.SubResourceArgs(id=address.id)],
        tags=place.tags,
        opts=pulumi.ResourceOptions(parent=parent),
    )


def create_public_address(
    name: str, place: Place, *, parent: pulumi.Resource
) -> network.PublicIPAddress:
    """A static public address, of the only kind that Azure still offers."""
    return network.PublicIPAddress(
        name,
        resource_group_name=place.resource_group,
        location=place.location,
        sku=network.PublicIPAddressSkuArgs(name=network.PublicIPAddressSkuName.STANDARD),
        public_ip_allocation_method=network.IPAllocationMethod.STATIC,
        tags=place.tags,
        opts=pulumi.ResourceOptions(parent=parent),
    )


def _subnet(
    name: str,
    prefix: str,
    rules: network.NetworkSecurityGroup,
    gateway: network.NatGateway,
) -> network.SubnetArgs:
    return network.SubnetArgs(
        name=name,
        address_prefix=prefix,
        network_security_group=network.NetworkSecurityGroupArgs(id=rules.id),
        nat_gateway=network.SubResourceArgs(id=gateway.id),
        # Said aloud: at the version of the API that the provider speaks, Azure's default is True.
        default_outbound_access=False,
    )


def _subnet_id(vnet: network.VirtualNetwork, subnet: str) -> pulumi.Output[str]:
    return pulumi.Output.concat(vnet.id, "/subnets/", subnet)


def _prefixes(subnet_id: str) -> pulumi.Output[list[str]]:
    """The address blocks of a subnet that exists."""
    # /subscriptions/ID/resourceGroups/GROUP/providers/Microsoft.Network/virtualNetworks/VNET/...
    parts = subnet_id.split("/")
    found = network.get_subnet_output(
        resource_group_name=parts[4], virtual_network_name=parts[8], subnet_name=parts[10]
    )
    return found.apply(_known_prefixes)


def _known_prefixes(subnet: network.GetSubnetResult) -> list[str]:
    if subnet.address_prefixes:
        return list(subnet.address_prefixes)
    return [] if subnet.address_prefix is None else [subnet.address_prefix]
