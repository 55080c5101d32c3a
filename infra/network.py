"""The cluster's network: subnets closed to the outside, with one way out."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pulumi
from pulumi_azure_native import network

from infra.place import Place
from sunspot.ray import ports
from sunspot.targets.azure.access import YOUR_HEAD_SUBNET, YOUR_WORKERS_SUBNET, Opening
from sunspot.targets.azure.addresses import Addresses
from sunspot.targets.azure.settings import SubnetIds
from sunspot.targets.azure.tree import Resource

HEAD_SUBNET = "head"
WORKERS_SUBNET = "workers"
# Azure finds a Bastion's subnet by this name.
BASTION_SUBNET = "AzureBastionSubnet"

# Priorities of the rules; Azure's own start at 65000 and let every peered network in.
FIRST_SSH_PRIORITY = 100
FIRST_SERVE_PRIORITY = 150
FIRST_RAY_PRIORITY = 200
PRIORITY_STEP = 10
DENY_ALL_PRIORITY = 4096

# Results, and the layers of images: a registry answers with an address of Storage, in the stack's
# region (Microsoft's page "Configure rules to access an Azure container registry behind a
# firewall"). An endpoint for registries themselves is a preview, and only of the Premium SKU.
SERVICE_ENDPOINTS = ("Microsoft.Storage",)

Prefixes = pulumi.Input[Sequence[pulumi.Input[str]]]
Resolve = Callable[[Sequence[str]], Prefixes]
"""Address blocks from the sources of an opening."""


@dataclass(frozen=True, kw_only=True)
class NetworkArgs:
    """What a network is made of: `addresses` of its own, or `subnet_ids` that exist."""

    place: Place
    addresses: Addresses | None
    subnet_ids: SubnetIds | None
    openings: Sequence[Opening]
    bastion: bool


class Network(pulumi.ComponentResource):
    """Two subnets and the rules that guard them.

    In the cluster's own network, the subnets have the security groups. In the user's subnets, the
    machines' NICs must have them: `nic_rules` holds their ids by role, and is empty otherwise.
    `head_address` is None where Azure assigns the head's address.
    """

    head_subnet_id: pulumi.Output[str]
    workers_subnet_id: pulumi.Output[str]
    bastion_subnet_id: pulumi.Output[str] | None
    head_address: str | None
    nic_rules: dict[ports.Role, pulumi.Output[str]]

    def __init__(
        self, declared: Resource, args: NetworkArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__(declared.type, declared.name, None, opts)
        if args.subnet_ids is not None:
            self._adopt(declared, args, args.subnet_ids)
        elif args.addresses is not None:
            self._create(declared, args, args.addresses)
        else:
            raise ValueError("a network needs addresses, or subnets that exist")
        self.register_outputs(
            {"headSubnetId": self.head_subnet_id, "workersSubnetId": self.workers_subnet_id}
        )

    def _create(self, declared: Resource, args: NetworkArgs, addresses: Addresses) -> None:
        place = args.place
        rules = _create_rules(declared, args, list, parent=self)
        gateway = _create_gateway(declared, place, parent=self)
        subnets = [
            _subnet(HEAD_SUBNET, addresses.head_subnet, rules["head"], gateway),
            _subnet(WORKERS_SUBNET, addresses.workers_subnet, rules["worker"], gateway),
        ]
        if args.bastion:
            subnets.append(
                network.SubnetArgs(name=BASTION_SUBNET, address_prefix=addresses.bastion_subnet)
            )
        # The subnets are part of the network's own body: made one by one in parallel, Azure
        # refuses all but the first.
        vnet = network.VirtualNetwork(
            declared["vnet"].name,
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
        self.nic_rules = {}

    def _adopt(self, declared: Resource, args: NetworkArgs, subnet_ids: SubnetIds) -> None:
        found = {
            YOUR_HEAD_SUBNET: _prefixes(subnet_ids.head),
            YOUR_WORKERS_SUBNET: _prefixes(subnet_ids.workers),
        }

        def prefixes(sources: Sequence[str]) -> pulumi.Output[list[str]]:
            blocks = [found.get(source, [source]) for source in sources]
            return pulumi.Output.all(*blocks).apply(
                lambda all_of_them: sorted({block for some in all_of_them for block in some})
            )

        rules = _create_rules(declared, args, prefixes, parent=self)
        self.head_subnet_id = pulumi.Output.from_input(subnet_ids.head)
        self.workers_subnet_id = pulumi.Output.from_input(subnet_ids.workers)
        self.bastion_subnet_id = None
        self.head_address = None
        self.nic_rules = {role: group.id for role, group in rules.items()}


def _create_rules(
    declared: Resource, args: NetworkArgs, prefixes: Resolve, *, parent: pulumi.Resource
) -> dict[ports.Role, network.NetworkSecurityGroup]:
    """The group of each role."""
    keys: dict[ports.Role, str] = {"head": "head-nsg", "worker": "workers-nsg"}
    return {
        role: network.NetworkSecurityGroup(
            declared[key].name,
            resource_group_name=args.place.resource_group,
            location=args.place.location,
            security_rules=_security_rules(
                [opening for opening in args.openings if opening.role == role], prefixes
            ),
            tags=args.place.tags,
            opts=pulumi.ResourceOptions(parent=parent),
        )
        for role, key in keys.items()
    }


def _security_rules(
    openings: Sequence[Opening], prefixes: Resolve
) -> list[network.SecurityRuleArgs]:
    """The inbound rules of a role: one for each opening, then one that denies everything else.

    An opening without sources has no rule: Azure requires a source.
    """
    rules: list[network.SecurityRuleArgs] = []
    # Serve's is apart, so that opening it renumbers no other rule.
    priorities = {
        "ssh": FIRST_SSH_PRIORITY,
        "serve": FIRST_SERVE_PRIORITY,
        "ray": FIRST_RAY_PRIORITY,
    }
    for opening in openings:
        if not opening.sources:
            continue
        kind = opening.port if opening.port in priorities else "ray"
        rules.append(_allow(opening, prefixes(opening.sources), priorities[kind]))
        priorities[kind] += PRIORITY_STEP
    return [*rules, _deny_all()]


def _allow(opening: Opening, sources: Prefixes, priority: int) -> network.SecurityRuleArgs:
    return network.SecurityRuleArgs(
        name=f"allow-{opening.port}",
        description=opening.purpose,
        priority=priority,
        direction=network.SecurityRuleDirection.INBOUND,
        access=network.SecurityRuleAccess.ALLOW,
        protocol=network.SecurityRuleProtocol.TCP,
        source_address_prefixes=sources,
        source_port_range="*",
        destination_address_prefix="*",
        destination_port_range=opening.range,
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


def _create_gateway(
    declared: Resource, place: Place, *, parent: pulumi.Resource
) -> network.NatGateway:
    address = create_public_address(declared["nat-ip"], place, parent=parent)
    return network.NatGateway(
        declared["nat"].name,
        resource_group_name=place.resource_group,
        location=place.location,
        sku=network.NatGatewaySkuArgs(name=network.NatGatewaySkuName.STANDARD),
        public_ip_addresses=[network.SubResourceArgs(id=address.id)],
        tags=place.tags,
        opts=pulumi.ResourceOptions(parent=parent),
    )


def create_public_address(
    declared: Resource, place: Place, *, parent: pulumi.Resource
) -> network.PublicIPAddress:
    """A static public address of the Standard SKU, the only one that Azure still offers."""
    return network.PublicIPAddress(
        declared.name,
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
        # Traffic to these services does not go through the gateway, which bills by the gigabyte.
        service_endpoints=[
            network.ServiceEndpointPropertiesFormatArgs(service=service)
            for service in SERVICE_ENDPOINTS
        ],
        # Explicit: in the version of the API that the provider uses, the default is True.
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
