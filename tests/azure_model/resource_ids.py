"""The ids of Azure's resources, made of the inputs that Pulumi gives them."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

SUBSCRIPTION = "11111111-2222-3333-4444-555555555555"
TENANT = "99999999-8888-7777-6666-555555555555"

_ROOT = f"/subscriptions/{SUBSCRIPTION}"
_GROUPS = f"{_ROOT}/resourceGroups"
_GROUP = f"{_GROUPS}/{{resourceGroupName}}"
_ACCOUNT = f"{_GROUP}/providers/Microsoft.Storage/storageAccounts/{{accountName}}"
_VAULT = f"{_GROUP}/providers/Microsoft.KeyVault/vaults/{{vaultName}}"
_REGISTRY = f"{_GROUP}/providers/Microsoft.ContainerRegistry/registries/{{registryName}}"
_NETWORK = f"{_GROUP}/providers/Microsoft.Network"
_COMPUTE = f"{_GROUP}/providers/Microsoft.Compute"

_CLUSTER = f"{_GROUP}/providers/Microsoft.ContainerService/managedClusters/{{resourceName}}"
_IDENTITY = f"{_GROUP}/providers/Microsoft.ManagedIdentity/userAssignedIdentities/{{resourceName}}"

# Kind -> its id. The last name in it is the resource's own.
TEMPLATES = {
    "AgentPool": f"{_CLUSTER}/agentPools/{{agentPoolName}}",
    "BastionHost": f"{_NETWORK}/bastionHosts/{{bastionHostName}}",
    "BlobContainer": f"{_ACCOUNT}/blobServices/default/containers/{{containerName}}",
    "BlobServiceProperties": f"{_ACCOUNT}/blobServices/{{blobServicesName}}",
    "Disk": f"{_COMPUTE}/disks/{{diskName}}",
    "FederatedIdentityCredential": (
        f"{_IDENTITY}/federatedIdentityCredentials/{{federatedIdentityCredentialResourceName}}"
    ),
    "ManagedCluster": _CLUSTER,
    "ManagementPolicy": f"{_ACCOUNT}/managementPolicies/{{managementPolicyName}}",
    "NatGateway": f"{_NETWORK}/natGateways/{{natGatewayName}}",
    "NetworkInterface": f"{_NETWORK}/networkInterfaces/{{networkInterfaceName}}",
    "NetworkSecurityGroup": f"{_NETWORK}/networkSecurityGroups/{{networkSecurityGroupName}}",
    "PublicIPAddress": f"{_NETWORK}/publicIPAddresses/{{publicIpAddressName}}",
    "Registry": _REGISTRY,
    "ResourceGroup": _GROUP,
    "RoleAssignment": (
        "{scope}/providers/Microsoft.Authorization/roleAssignments/{roleAssignmentName}"
    ),
    "RoleDefinition": (
        "{scope}/providers/Microsoft.Authorization/roleDefinitions/{roleDefinitionId}"
    ),
    "Secret": f"{_VAULT}/secrets/{{secretName}}",
    "StorageAccount": _ACCOUNT,
    "TaskRun": f"{_REGISTRY}/taskRuns/{{taskRunName}}",
    "UserAssignedIdentity": _IDENTITY,
    "Vault": _VAULT,
    "VirtualMachine": f"{_COMPUTE}/virtualMachines/{{vmName}}",
    "VirtualMachineScaleSet": f"{_COMPUTE}/virtualMachineScaleSets/{{vmScaleSetName}}",
    "VirtualNetwork": f"{_NETWORK}/virtualNetworks/{{virtualNetworkName}}",
}


def kind_of(token: str) -> str:
    """The last part of a type: `VirtualMachine`."""
    return token.rsplit(":", 1)[1]


def id_inputs(kind: str) -> list[str]:
    """The inputs that make up a resource's id, its own name last."""
    return re.findall(r"\{(\w+)\}", TEMPLATES[kind])


def resource_id(kind: str, inputs: Mapping[str, Any]) -> str:
    """The id of a resource with these inputs, secrets opened."""
    return TEMPLATES[kind].format_map(inputs)


def group_id(name: str) -> str:
    """The id of a resource group."""
    return resource_id("ResourceGroup", {"resourceGroupName": name})


def group_of(identifier: str) -> str:
    """The id of the resource group that a resource lies in."""
    return "/".join(identifier.split("/")[: _GROUP.count("/") + 1])


def name_in(identifier: str) -> str:
    """A resource's own name."""
    return identifier.rsplit("/", 1)[1]


def is_within(identifier: str, outer: str) -> bool:
    """Whether a resource is another one, or lies in it."""
    return identifier == outer or identifier.startswith(f"{outer}/")


def ids_in(value: Any) -> Iterator[str]:
    """Every id of something in a resource group that a value names."""
    if isinstance(value, str):
        if value.startswith(f"{_GROUPS}/"):
            yield value
    elif isinstance(value, Mapping):
        for inner in value.values():
            yield from ids_in(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from ids_in(inner)
