"""A pool of workers: one Flexible scale set, of one group and one market."""

from collections.abc import Sequence
from dataclasses import dataclass

import pulumi
from pulumi_azure_native import compute

from infra.machines import ADMIN_USER, diagnostics, linux, security_profile, system_image
from infra.place import Place
from sunspot.targets.azure.machine import Machine
from sunspot.targets.azure.plan import Pool
from sunspot.targets.azure.tree import Resource

# Pays up to the on-demand price, so that no machine is evicted because of its price.
NO_PRICE_LIMIT = -1
# How long Azure tries to restore an evicted machine of a fixed group.
RESTORE_TIMEOUT = "PT1H"
# The shortest notice that Azure gives before it deletes an on-demand machine of a scale set.
TERMINATE_NOTICE = "PT5M"

# What Azure refuses to change in a set, or may refuse. The rest changes in place: VMs that are
# there stay as they are, and `sunspot up` rolls them (Microsoft, "Modify a Virtual Machine Scale
# Set"; Terraform's azurerm_orchestrated_virtual_machine_scale_set updates the same properties).
# By that page another size may need deallocated VMs. An image's version may change; another offer
# or kind of image was refused (hashicorp/terraform-provider-azurerm#13657,
# MicrosoftDocs/azure-docs#32800).
REPLACE_ON_CHANGES = [
    "orchestrationMode",
    "platformFaultDomainCount",
    "singlePlacementGroup",
    "virtualMachineProfile.priority",
    "virtualMachineProfile.evictionPolicy",
    "sku.name",
    "virtualMachineProfile.osProfile.adminUsername",
    "virtualMachineProfile.storageProfile.imageReference.publisher",
    "virtualMachineProfile.storageProfile.imageReference.offer",
    "virtualMachineProfile.storageProfile.imageReference.sku",
    "virtualMachineProfile.storageProfile.osDisk.diffDiskSettings",
]


@dataclass(frozen=True, kw_only=True)
class WorkerPoolArgs:
    """A pool and its surroundings.

    `network` names where its machines are, in the stack file's terms. `grants` are the role
    assignments and images that its machines need to boot; `hooks` run before the set is updated.
    """

    place: Place
    pool: Pool
    starts_with: pulumi.Input[int]
    subnet_id: pulumi.Input[str]
    network: str
    rules_id: pulumi.Input[str] | None
    identity_id: pulumi.Input[str]
    ssh_public_key: str
    user_data: pulumi.Input[str]
    grants: Sequence[pulumi.Resource]
    hooks: pulumi.ResourceHookBinding | None


class WorkerPool(pulumi.ComponentResource):
    """A scale set whose machines have no public address.

    Pulumi sets the capacity of a fixed pool; Ray's autoscaler sets that of an elastic pool, once
    Pulumi has created it.
    """

    scale_set: compute.VirtualMachineScaleSet

    def __init__(
        self, declared: Resource, args: WorkerPoolArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__(declared.type, declared.name, None, opts)
        self.scale_set = _create_scale_set(declared["vmss"], args, parent=self)
        self.register_outputs({"scaleSetId": self.scale_set.id})


def _create_scale_set(
    declared: Resource, args: WorkerPoolArgs, *, parent: pulumi.Resource
) -> compute.VirtualMachineScaleSet:
    pool = args.pool
    return compute.VirtualMachineScaleSet(
        declared.name,
        resource_group_name=args.place.resource_group,
        location=args.place.location,
        vm_scale_set_name=pool.scale_set,
        orchestration_mode=compute.OrchestrationMode.FLEXIBLE,
        # Spreads most widely, and is the only setting with many GPU machines available.
        platform_fault_domain_count=1,
        single_placement_group=False,
        sku=compute.SkuArgs(
            name=pool.machine.size.name, tier="Standard", capacity=args.starts_with
        ),
        identity=compute.VirtualMachineScaleSetIdentityArgs(
            type=compute.ResourceIdentityType.USER_ASSIGNED,
            user_assigned_identities=[args.identity_id],
        ),
        spot_restore_policy=_restore_policy(pool),
        virtual_machine_profile=_profile(args),
        tags=args.place.tags,
        opts=pulumi.ResourceOptions(
            parent=parent,
            depends_on=args.grants,
            ignore_changes=["sku.capacity"] if pool.elastic else [],
            replace_on_changes=REPLACE_ON_CHANGES,
            # Ray's autoscaler (2.60) takes no node over that it has not seen starting; and machines
            # of two networks would not reach one head.
            replacement_trigger=f"{'elastic' if pool.elastic else 'fixed'} in {args.network}",
            hooks=args.hooks,
            # The name is fixed, because the head refers to it.
            delete_before_replace=True,
        ),
    )


def _profile(args: WorkerPoolArgs) -> compute.VirtualMachineScaleSetVMProfileArgs:
    pool = args.pool
    is_spot = pool.market == "spot"
    priorities = compute.VirtualMachinePriorityTypes
    return compute.VirtualMachineScaleSetVMProfileArgs(
        priority=priorities.SPOT if is_spot else priorities.REGULAR,
        eviction_policy=compute.VirtualMachineEvictionPolicyTypes.DELETE if is_spot else None,
        billing_profile=compute.BillingProfileArgs(max_price=NO_PRICE_LIMIT) if is_spot else None,
        # Azure does not offer this for spot machines, which get an eviction notice instead.
        scheduled_events_profile=None if is_spot else _terminate_notice(),
        os_profile=compute.VirtualMachineScaleSetOSProfileArgs(
            computer_name_prefix=f"{pool.node_type}-",
            admin_username=ADMIN_USER,
            custom_data=args.user_data,
            linux_configuration=linux(args.ssh_public_key),
        ),
        storage_profile=compute.VirtualMachineScaleSetStorageProfileArgs(
            image_reference=system_image(pool.machine), os_disk=_disk(pool.machine)
        ),
        network_profile=_network_profile(args),
        security_profile=security_profile(pool.machine),
        diagnostics_profile=diagnostics(),
    )


def _restore_policy(pool: Pool) -> compute.SpotRestorePolicyArgs | None:
    # The size of a set has one owner: an autoscaler replaces the machines that it needs.
    if pool.elastic or pool.market != "spot":
        return None
    return compute.SpotRestorePolicyArgs(enabled=True, restore_timeout=RESTORE_TIMEOUT)


def _terminate_notice() -> compute.ScheduledEventsProfileArgs:
    return compute.ScheduledEventsProfileArgs(
        terminate_notification_profile=compute.TerminateNotificationProfileArgs(
            enable=True, not_before_timeout=TERMINATE_NOTICE
        )
    )


def _disk(machine: Machine) -> compute.VirtualMachineScaleSetOSDiskArgs:
    if machine.ephemeral_disk:
        return compute.VirtualMachineScaleSetOSDiskArgs(
            create_option=compute.DiskCreateOptionTypes.FROM_IMAGE,
            # Azure requires this caching for ephemeral disks.
            caching=compute.CachingTypes.READ_ONLY,
            diff_disk_settings=compute.DiffDiskSettingsArgs(
                option=compute.DiffDiskOptions.LOCAL,
                placement=compute.DiffDiskPlacement.RESOURCE_DISK,
            ),
            delete_option=compute.DiskDeleteOptionTypes.DELETE,
        )
    return compute.VirtualMachineScaleSetOSDiskArgs(
        create_option=compute.DiskCreateOptionTypes.FROM_IMAGE,
        caching=compute.CachingTypes.READ_WRITE,
        disk_size_gb=machine.disk_gib,
        managed_disk=compute.VirtualMachineScaleSetManagedDiskParametersArgs(
            storage_account_type=compute.StorageAccountTypes.PREMIUM_LRS
        ),
        delete_option=compute.DiskDeleteOptionTypes.DELETE,
    )


def _network_profile(args: WorkerPoolArgs) -> compute.VirtualMachineScaleSetNetworkProfileArgs:
    return compute.VirtualMachineScaleSetNetworkProfileArgs(
        # Flexible sets must say which API makes their NICs.
        network_api_version=compute.NetworkApiVersion.NETWORK_API_VERSION_2022_11_01,
        network_interface_configurations=[
            compute.VirtualMachineScaleSetNetworkConfigurationArgs(
                name="nic",
                primary=True,
                enable_accelerated_networking=True,
                delete_option=compute.DeleteOptions.DELETE,
                network_security_group=(
                    None if args.rules_id is None else compute.SubResourceArgs(id=args.rules_id)
                ),
                ip_configurations=[
                    compute.VirtualMachineScaleSetIPConfigurationArgs(
                        name="ip",
                        primary=True,
                        subnet=compute.ApiEntityReferenceArgs(id=args.subnet_id),
                    )
                ],
            )
        ],
    )
