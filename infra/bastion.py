"""Azure Bastion: SSH to a head that has no public address."""

from dataclasses import dataclass

import pulumi
from pulumi_azure_native import network

from infra.network import create_public_address
from infra.place import Place
from sunspot.targets.azure.tree import Resource


@dataclass(frozen=True, kw_only=True)
class BastionArgs:
    """Where the Bastion goes; its subnet must have the name that Azure requires."""

    place: Place
    subnet_id: pulumi.Input[str]


class Bastion(pulumi.ComponentResource):
    """A Bastion that supports `az network bastion ssh` and its tunnels."""

    host_name: pulumi.Output[str]

    def __init__(
        self, declared: Resource, args: BastionArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__(declared.type, declared.name, None, opts)
        host = _create_host(declared, args, parent=self)
        self.host_name = host.name
        self.register_outputs({"hostName": self.host_name})


def _create_host(
    declared: Resource, args: BastionArgs, *, parent: pulumi.Resource
) -> network.BastionHost:
    address = create_public_address(declared["ip"], args.place, parent=parent)
    return network.BastionHost(
        declared["host"].name,
        resource_group_name=args.place.resource_group,
        location=args.place.location,
        # The cheapest SKU that supports native clients.
        sku=network.SkuArgs(name=network.BastionHostSkuName.STANDARD),
        enable_tunneling=True,
        ip_configurations=[
            network.BastionHostIPConfigurationArgs(
                name="ip",
                subnet=network.SubResourceArgs(id=args.subnet_id),
                public_ip_address=network.SubResourceArgs(id=address.id),
            )
        ],
        tags=args.place.tags,
        opts=pulumi.ResourceOptions(parent=parent),
    )
