"""The head: one on-demand machine whose private address never changes."""

from collections.abc import Sequence
from dataclasses import dataclass

import pulumi
from pulumi_azure_native import compute, network

from cloud_init.render import STATE_LUN
from infra.machines import ADMIN_USER, diagnostics, linux, security_profile, system_image
from infra.network import create_public_address
from infra.place import Place, answered
from sunspot.targets.azure.machine import Machine
from sunspot.targets.azure.plan import STATE_DISK_GIB
from sunspot.targets.azure.tree import Resource

# Azure refuses to change these on an existing machine, and the provider does not know that.
REPLACE_ON_CHANGES = [
    "osProfile.adminUsername",
    "osProfile.computerName",
    "osProfile.customData",
    "osProfile.linuxConfiguration",
    "storageProfile.imageReference",
    # Ray would lose the disk while it runs.
    "storageProfile.dataDisks[*].managedDisk.id",
]


@dataclass(frozen=True, kw_only=True)
class HeadNicArgs:
    """Where the head's NIC goes; without an `address`, Azure assigns one of the subnet."""

    place: Place
    subnet_id: pulumi.Input[str]
    address: str | None
    rules_id: pulumi.Input[str] | None


class HeadNic(pulumi.ComponentResource):
    """The head's NIC, which outlives its machine.

    So the workers know the head's address before the head exists, and it stays the same when the
    head is replaced.
    """

    nic_id: pulumi.Output[str]
    private_address: pulumi.Output[str]
    public_address: pulumi.Output[str] | None

    def __init__(
        self, declared: Resource, args: HeadNicArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__(declared.type, declared.name, None, opts)
        address = declared.get("ip")
        public = (
            None if address is None else create_public_address(address, args.place, parent=self)
        )
        nic = _create_nic(declared["nic"], args, public, parent=self)
        self.nic_id = nic.id
        self.private_address = (
            nic.ip_configurations.apply(_first_address)
            if args.address is None
            else pulumi.Output.from_input(args.address)
        )
        self.public_address = None if public is None else public.ip_address.apply(_public_address)
        self.register_outputs(
            {"privateAddress": self.private_address, "publicAddress": self.public_address}
        )


@dataclass(frozen=True, kw_only=True)
class HeadArgs:
    """The head's machine.

    It boots from `user_data`; `live_data` may change while it runs. `grants` are the role
    assignments and images that it needs to boot.
    """

    place: Place
    vm_name: str
    machine: Machine
    nic_id: pulumi.Input[str]
    identity_id: pulumi.Input[str]
    ssh_public_key: str
    user_data: pulumi.Input[str]
    live_data: pulumi.Input[str]
    grants: Sequence[pulumi.Resource]


class Head(pulumi.ComponentResource):
    """The head's machine: on demand, replaced when what it boots from changes.

    The disk with the cluster's state is attached to it, and stays when it is replaced.
    """

    state: compute.Disk
    vm: compute.VirtualMachine

    def __init__(
        self, declared: Resource, args: HeadArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__(declared.type, declared.name, None, opts)
        self.state = _create_state_disk(declared["state"], args.place, parent=self)
        self.vm = _create_machine(declared["vm"], args, self.state.id, parent=self)
        self.register_outputs({"vmId": self.vm.id})


def _create_nic(
    declared: Resource,
    args: HeadNicArgs,
    public: network.PublicIPAddress | None,
    *,
    parent: pulumi.Resource,
) -> network.NetworkInterface:
    methods = network.IPAllocationMethod
    return network.NetworkInterface(
        declared.name,
        resource_group_name=args.place.resource_group,
        location=args.place.location,
        enable_accelerated_networking=True,
        network_security_group=(
            None if args.rules_id is None else network.NetworkSecurityGroupArgs(id=args.rules_id)
        ),
        ip_configurations=[
            network.NetworkInterfaceIPConfigurationArgs(
                name="ip",
                primary=True,
                subnet=network.SubnetArgs(id=args.subnet_id),
                private_ip_allocation_method=(
                    methods.DYNAMIC if args.address is None else methods.STATIC
                ),
                private_ip_address=args.address,
                public_ip_address=(
                    None if public is None else network.PublicIPAddressArgs(id=public.id)
                ),
            )
        ],
        tags=args.place.tags,
        opts=pulumi.ResourceOptions(parent=parent),
    )


def _create_state_disk(
    declared: Resource, place: Place, *, parent: pulumi.Resource
) -> compute.Disk:
    return compute.Disk(
        declared.name,
        resource_group_name=place.resource_group,
        location=place.location,
        creation_data=compute.CreationDataArgs(create_option=compute.DiskCreateOption.EMPTY),
        disk_size_gb=STATE_DISK_GIB,
        sku=compute.DiskSkuArgs(name=compute.DiskStorageAccountTypes.PREMIUM_LRS),
        # It is read through its machine, never by a link to its content.
        network_access_policy=compute.NetworkAccessPolicy.DENY_ALL,
        public_network_access=compute.PublicNetworkAccess.DISABLED,
        tags=place.tags,
        opts=pulumi.ResourceOptions(parent=parent, protect=declared.protected),
    )


def _create_machine(
    declared: Resource,
    args: HeadArgs,
    state_disk: pulumi.Input[str],
    *,
    parent: pulumi.Resource,
) -> compute.VirtualMachine:
    return compute.VirtualMachine(
        declared.name,
        resource_group_name=args.place.resource_group,
        location=args.place.location,
        vm_name=args.vm_name,
        user_data=args.live_data,
        priority=compute.VirtualMachinePriorityTypes.REGULAR,
        hardware_profile=compute.HardwareProfileArgs(vm_size=args.machine.size.name),
        storage_profile=compute.StorageProfileArgs(
            image_reference=system_image(args.machine),
            os_disk=_disk(args),
            data_disks=[_state_disk(state_disk)],
        ),
        os_profile=compute.OSProfileArgs(
            computer_name=args.vm_name,
            admin_username=ADMIN_USER,
            custom_data=args.user_data,
            linux_configuration=linux(args.ssh_public_key),
        ),
        network_profile=compute.NetworkProfileArgs(
            network_interfaces=[
                compute.NetworkInterfaceReferenceArgs(
                    id=args.nic_id,
                    primary=True,
                    # The NIC stays when the machine is replaced.
                    delete_option=compute.DeleteOptions.DETACH,
                )
            ]
        ),
        identity=compute.VirtualMachineIdentityArgs(
            type=compute.ResourceIdentityType.USER_ASSIGNED,
            user_assigned_identities=[args.identity_id],
        ),
        security_profile=security_profile(args.machine),
        diagnostics_profile=diagnostics(),
        tags=args.place.tags,
        opts=pulumi.ResourceOptions(
            parent=parent,
            depends_on=args.grants,
            replace_on_changes=REPLACE_ON_CHANGES,
            # Two machines cannot share the NIC, the state disk or the name.
            delete_before_replace=True,
            protect=declared.protected,
        ),
    )


def _disk(args: HeadArgs) -> compute.OSDiskArgs:
    return compute.OSDiskArgs(
        create_option=compute.DiskCreateOptionTypes.FROM_IMAGE,
        caching=compute.CachingTypes.READ_WRITE,
        disk_size_gb=args.machine.disk_gib,
        managed_disk=compute.ManagedDiskParametersArgs(
            storage_account_type=compute.StorageAccountTypes.PREMIUM_LRS
        ),
        delete_option=compute.DiskDeleteOptionTypes.DELETE,
    )


def _state_disk(disk_id: pulumi.Input[str]) -> compute.DataDiskArgs:
    """The disk of the cluster's state, attached where state.sh looks for it."""
    return compute.DataDiskArgs(
        lun=STATE_LUN,
        create_option=compute.DiskCreateOptionTypes.ATTACH,
        # Each write is synchronous and must be on the disk: a cache would only add a step.
        caching=compute.CachingTypes.NONE,
        managed_disk=compute.ManagedDiskParametersArgs(id=disk_id),
        delete_option=compute.DiskDeleteOptionTypes.DETACH,
    )


def _first_address(
    configurations: Sequence[network.outputs.NetworkInterfaceIPConfigurationResponse] | None,
) -> str:
    first = None if not configurations else configurations[0].private_ip_address
    return answered(first, "the head's private address")


def _public_address(address: str | None) -> str:
    return answered(address, "the head's public address")
