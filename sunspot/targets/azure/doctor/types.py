"""ARM's names of the types of a plan's resources."""

from __future__ import annotations

from sunspot.targets.azure.plan import AzurePlan
from sunspot.targets.azure.tree import NATIVE, tree

# Pulumi's type, without its first part -> ARM's.
ARM_TYPES = {
    "authorization:RoleAssignment": "Microsoft.Authorization/roleAssignments",
    "authorization:RoleDefinition": "Microsoft.Authorization/roleDefinitions",
    "compute:Disk": "Microsoft.Compute/disks",
    "compute:VirtualMachine": "Microsoft.Compute/virtualMachines",
    "compute:VirtualMachineScaleSet": "Microsoft.Compute/virtualMachineScaleSets",
    "containerregistry:Registry": "Microsoft.ContainerRegistry/registries",
    "containerregistry:TaskRun": "Microsoft.ContainerRegistry/registries/taskRuns",
    "keyvault:Secret": "Microsoft.KeyVault/vaults/secrets",
    "keyvault:Vault": "Microsoft.KeyVault/vaults",
    "managedidentity:UserAssignedIdentity": "Microsoft.ManagedIdentity/userAssignedIdentities",
    "network:BastionHost": "Microsoft.Network/bastionHosts",
    "network:NatGateway": "Microsoft.Network/natGateways",
    "network:NetworkInterface": "Microsoft.Network/networkInterfaces",
    "network:NetworkSecurityGroup": "Microsoft.Network/networkSecurityGroups",
    "network:PublicIPAddress": "Microsoft.Network/publicIPAddresses",
    "network:VirtualNetwork": "Microsoft.Network/virtualNetworks",
    "resources:ResourceGroup": "Microsoft.Resources/subscriptions/resourceGroups",
    "storage:BlobContainer": "Microsoft.Storage/storageAccounts/blobServices/containers",
    "storage:BlobServiceProperties": "Microsoft.Storage/storageAccounts/blobServices",
    "storage:ManagementPolicy": "Microsoft.Storage/storageAccounts/managementPolicies",
    "storage:StorageAccount": "Microsoft.Storage/storageAccounts",
}

# Every subscription is registered with these.
_ALWAYS = {"Microsoft.Authorization", "Microsoft.Resources"}


def arm_types(plan: AzurePlan) -> list[str]:
    """The types of what the plan creates, each once, sorted."""
    kinds = {one.type.removeprefix(NATIVE) for one in tree(plan).walk()}
    return sorted(ARM_TYPES[kind] for kind in kinds if kind in ARM_TYPES)


def namespaces(plan: AzurePlan) -> list[str]:
    """The resource providers that a subscription must be registered with for the plan."""
    return sorted({kind.partition("/")[0] for kind in arm_types(plan)} - _ALWAYS)
