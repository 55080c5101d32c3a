"""A stack's state as `pulumi stack export` writes it."""

from typing import Any

from azure_model.resource_ids import group_id, kind_of, name_in, resource_id

# Of the stack "x".
CLUSTER = "sunspot-x"
STACK_TYPE = "pulumi:pulumi:Stack"
GROUP_TYPE = "azure-native:resources:ResourceGroup"
MACHINE_TYPE = "azure-native:compute:VirtualMachine"
AKS_TYPE = "azure-native:containerservice:ManagedCluster"
ACCOUNT_TYPE = "azure-native:storage:StorageAccount"
PROVIDER = {"urn": "urn:p", "type": "pulumi:providers:azure-native", "custom": True, "id": "1"}


def exported(*resources: dict[str, Any], **outputs: Any) -> dict[str, Any]:
    """The state of a stack with these resources and outputs."""
    root = {"urn": "urn:stack", "type": STACK_TYPE, "outputs": outputs}
    return {"version": 3, "deployment": {"resources": [root, PROVIDER, *resources]}}


def resource(
    token: str, identifier: str, *, protect: bool = False, **outputs: Any
) -> dict[str, Any]:
    """A resource of Azure; `token` is Pulumi's type of it."""
    return {
        "urn": f"urn:pulumi:x::sunspot::{token}::{name_in(identifier)}",
        "type": token,
        "custom": True,
        "id": identifier,
        "protect": protect,
        "outputs": outputs,
    }


def group(cluster: str = CLUSTER) -> dict[str, Any]:
    """The resource group of a cluster."""
    return resource(GROUP_TYPE, group_id(cluster))


def machine(vm_id: str = "one", *, cluster: str = CLUSTER) -> dict[str, Any]:
    """The virtual machine of a cluster's head, which the program protects."""
    inputs = {"resourceGroupName": cluster, "vmName": f"{cluster}-head"}
    identifier = resource_id(kind_of(MACHINE_TYPE), inputs)
    return resource(MACHINE_TYPE, identifier, protect=True, vmId=vm_id)


def aks() -> dict[str, Any]:
    """An AKS cluster."""
    inputs = {"resourceGroupName": CLUSTER, "resourceName": CLUSTER}
    return resource(AKS_TYPE, resource_id(kind_of(AKS_TYPE), inputs))


def account(*, protect: bool = True) -> dict[str, Any]:
    """The storage account of the results."""
    inputs = {"resourceGroupName": CLUSTER, "accountName": "sunspot1"}
    return resource(ACCOUNT_TYPE, resource_id(kind_of(ACCOUNT_TYPE), inputs), protect=protect)


GROUP, ACCOUNT = group()["id"], account()["id"]
