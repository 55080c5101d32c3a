"""Roles and their assignments: who may do what, and where."""

import asyncio
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pulumi
from pulumi.runtime.proto.resource_pb2 import RESOURCE_MONITOR_FEATURE_ERROR_HOOKS
from pulumi.runtime.settings import monitor_supports_feature
from pulumi_azure_native import authorization

from sunspot.targets.azure.tree import Resource

# Azure's built-in roles, by their ids, which are the same in every subscription.
ACR_PULL = "7f951dda-4ed3-4680-a7ca-43fe172d538d"
BLOB_DATA_CONTRIBUTOR = "ba92f5b4-2d11-453d-a403-e96b0029c9fe"
KEY_VAULT_SECRETS_USER = "4633458b-17de-408a-b874-0445c86b69e6"
MANAGED_IDENTITY_OPERATOR = "f1a07417-d97a-45cb-824c-7a7467783830"
NETWORK_CONTRIBUTOR = "4d97b98b-1d4f-4787-a291-c67834d212e7"
READER = "acdd72a7-3385-48ef-bd42-f606fba81ae7"
VIRTUAL_MACHINE_CONTRIBUTOR = "9980e02c-c2be-4d73-94e8-173b1dc7cf3c"

# Azure's answers to an assignment of a role that it has not replicated yet. It takes up to ten
# minutes. Sources: pulumi/pulumi-azure#840, hashicorp/terraform-provider-azurerm#10442; for the
# last one, Azure/Azure-Landing-Zones#4071.
NOT_YET_KNOWN = (
    "RoleDefinitionDoesNotExist",
    "RoleAssignmentScopeNotAssignableToRoleDefinition",
)
ASSIGN_AGAIN_S = 10.0
ASSIGN_TRIES = 60

_NAMES = uuid.UUID("6f2b7d0e-6c0b-5d8e-9a43-0f1d5b8c2e77")


@dataclass(frozen=True, kw_only=True)
class CustomRole:
    """A role that is not built in: the actions that it allows, each with its reason."""

    key: str
    description: str
    actions: Mapping[str, str]


# A Flexible set's machines are virtual machines of their own, with NICs and disks beside them in
# the resource group, which Azure creates with the rights of the one who changes the set:
# "Compute VMSS Write, Compute VM Write, Network" (a Uniform set needs only the first). Source: the
# row "RBAC Permissions Required" of Microsoft's "Orchestration modes for ... Scale Sets".
SCALER = CustomRole(
    key="scaler",
    description="Grows scale sets and deletes single machines of them",
    actions={
        "Microsoft.Compute/virtualMachineScaleSets/read": "reads the capacity",
        "Microsoft.Compute/virtualMachineScaleSets/write": "raises the capacity",
        "Microsoft.Compute/virtualMachineScaleSets/delete/action": "deletes idle machines by name",
        # Azure requires these three on what new machines of the set use.
        "Microsoft.Network/virtualNetworks/subnets/join/action": "new machines join the subnet",
        "Microsoft.Network/networkSecurityGroups/join/action": "and use its security group",
        "Microsoft.ManagedIdentity/userAssignedIdentities/assign/action": "and get an identity",
    },
)
MACHINES = CustomRole(
    key="machines",
    description="Creates, lists and deletes the machines of scale sets in a resource group",
    actions={
        "Microsoft.Compute/virtualMachines/read": "which machines there are, and their states",
        "Microsoft.Compute/virtualMachines/write": "a set that grows creates machines",
        "Microsoft.Compute/virtualMachines/delete": "and one that shrinks deletes them",
        # The log of a serial console: why a machine does not join.
        "Microsoft.Compute/virtualMachines/retrieveBootDiagnosticsData/action": "reads a console",
        "Microsoft.Network/networkInterfaces/read": "each machine has a NIC",
        "Microsoft.Network/networkInterfaces/write": "created with it",
        "Microsoft.Network/networkInterfaces/join/action": "attached to it",
        "Microsoft.Network/networkInterfaces/delete": "and deleted with it",
        "Microsoft.Compute/disks/read": "and a disk, unless that is the machine's temporary one",
        "Microsoft.Compute/disks/write": "created with it",
        "Microsoft.Compute/disks/delete": "and deleted with it",
    },
)
STOPPER = CustomRole(
    key="stopper",
    description="Deallocates the virtual machine that it is assigned at",
    actions={
        "Microsoft.Compute/virtualMachines/deallocate/action": "a head that nothing uses stops",
    },
)


# A worker deletes itself through its set, which needs a right on that set. What the set then
# deletes are resources beside it in the group (see above), for which there is no narrower scope: an
# assignment on a scale set does not reach its machines, and none can be made before a machine is.
LEAVER = CustomRole(
    key="leaver",
    description="Deletes single machines of scale sets",
    actions={"Microsoft.Compute/virtualMachineScaleSets/delete/action": "a worker names itself"},
)
LEAVING = CustomRole(
    key="leaving",
    description="Lets a scale set delete a machine of it",
    actions={
        "Microsoft.Compute/virtualMachines/delete": "the machine",
        "Microsoft.Network/networkInterfaces/delete": "with its NIC",
        "Microsoft.Compute/disks/delete": "and its disk, unless that is its temporary one",
    },
)


def define(
    declared: Resource,
    role: CustomRole,
    *,
    scopes: Sequence[pulumi.Input[str]],
    owner: pulumi.Input[str],
    parent: pulumi.Resource,
) -> authorization.RoleDefinition:
    """Defines a custom role that can be assigned in these resource groups, the cluster's first.

    A role's name must be unique in the whole directory, so it contains `owner`, the name of the
    resource group.
    """
    return authorization.RoleDefinition(
        declared.name,
        role_definition_id=pulumi.Output.from_input(scopes[0]).apply(
            lambda scope: str(uuid.uuid5(_NAMES, f"{scope}|{role.key}".lower()))
        ),
        role_name=pulumi.Output.concat("Sunspot ", role.key, " ", owner),
        role_type="CustomRole",
        description=role.description,
        permissions=[authorization.PermissionArgs(actions=list(role.actions))],
        assignable_scopes=scopes,
        scope=scopes[0],
        opts=pulumi.ResourceOptions(parent=parent),
    )


def assign(
    declared: Resource,
    *,
    principal_id: pulumi.Input[str],
    role: str,
    scope: pulumi.Input[str],
    parent: pulumi.Resource,
) -> authorization.RoleAssignment:
    """Assigns a built-in role, by its id, to a managed identity at a scope."""
    scope = pulumi.Output.from_input(scope)
    definition = pulumi.Output.concat(
        "/subscriptions/",
        subscription_of(scope),
        "/providers/Microsoft.Authorization/roleDefinitions/",
        role,
    )
    return _assign(declared, principal_id, definition, scope, key=role, parent=parent)


def assign_custom(
    declared: Resource,
    *,
    principal_id: pulumi.Input[str],
    role: authorization.RoleDefinition,
    scope: pulumi.Input[str],
    parent: pulumi.Resource,
    opts: pulumi.ResourceOptions,
) -> authorization.RoleAssignment:
    """Assigns a custom role to a managed identity at a scope."""
    scope = pulumi.Output.from_input(scope)
    return _assign(declared, principal_id, role.id, scope, key=role.id, parent=parent, opts=opts)


def until_known() -> pulumi.ResourceHookBinding | None:
    """Repeats an assignment until Azure knows its new role; None if the `pulumi` command cannot.

    To be made once in a program.
    """
    if not monitor_supports_feature(RESOURCE_MONITOR_FEATURE_ERROR_HOOKS):
        return None
    hook = pulumi.ErrorHook("sunspot-until-role-is-known", is_known_later)
    return pulumi.ResourceHookBinding(on_error=[hook])


async def is_known_later(failed: pulumi.ErrorHookArgs) -> bool:
    """Whether to repeat a failed assignment, after a pause."""
    newest = failed.errors[0] if failed.errors else ""
    if len(failed.errors) > ASSIGN_TRIES or not any(code in newest for code in NOT_YET_KNOWN):
        return False
    await asyncio.sleep(ASSIGN_AGAIN_S)
    return True


def _assign(
    declared: Resource,
    principal_id: pulumi.Input[str],
    definition: pulumi.Output[str],
    scope: pulumi.Output[str],
    *,
    key: pulumi.Input[str],
    parent: pulumi.Resource,
    opts: pulumi.ResourceOptions | None = None,
) -> authorization.RoleAssignment:
    """The assignment's name is derived from principal, role and scope.

    So a repeated creation finds it again, and another principal (the same identity, recreated)
    gets another name, as Azure requires.
    """
    return authorization.RoleAssignment(
        declared.name,
        role_assignment_name=pulumi.Output.all(scope, principal_id, key).apply(
            lambda parts: str(uuid.uuid5(_NAMES, "|".join(parts).lower()))
        ),
        principal_id=principal_id,
        # Without the type, Azure refuses an identity that its directory has not replicated yet.
        principal_type=authorization.PrincipalType.SERVICE_PRINCIPAL,
        role_definition_id=definition,
        scope=scope,
        opts=pulumi.ResourceOptions.merge(opts, pulumi.ResourceOptions(parent=parent)),
    )


def subscription_of(resource_id: pulumi.Input[str]) -> pulumi.Output[str]:
    """The subscription in an ARM id."""
    return pulumi.Output.from_input(resource_id).apply(lambda text: text.split("/")[2])


def group_of(resource_id: str) -> str:
    """The id of the resource group in an ARM id."""
    return "/".join(resource_id.split("/")[:5])
