"""Roles and their assignments: who may do what, and where."""

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pulumi
from pulumi_azure_native import authorization

from sunspot.targets.azure.tree import Resource

# Azure's built-in roles, by their ids, which are the same in every subscription.
ACR_PULL = "7f951dda-4ed3-4680-a7ca-43fe172d538d"
BLOB_DATA_CONTRIBUTOR = "ba92f5b4-2d11-453d-a403-e96b0029c9fe"
KEY_VAULT_SECRETS_USER = "4633458b-17de-408a-b874-0445c86b69e6"

_NAMES = uuid.UUID("6f2b7d0e-6c0b-5d8e-9a43-0f1d5b8c2e77")


@dataclass(frozen=True, kw_only=True)
class CustomRole:
    """A role that is not built in: the actions that it allows, each with its reason."""

    key: str
    description: str
    actions: Mapping[str, str]


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
READER = CustomRole(
    key="reader",
    description="Lists the machines of a resource group",
    actions={
        # On the resource group: a Flexible set's machines are not children of the set.
        "Microsoft.Compute/virtualMachines/read": "which machines there are, and their states",
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
) -> authorization.RoleAssignment:
    """Assigns a custom role to a managed identity at a scope."""
    scope = pulumi.Output.from_input(scope)
    return _assign(declared, principal_id, role.id, scope, key=role.id, parent=parent)


def _assign(
    declared: Resource,
    principal_id: pulumi.Input[str],
    definition: pulumi.Output[str],
    scope: pulumi.Output[str],
    *,
    key: pulumi.Input[str],
    parent: pulumi.Resource,
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
        opts=pulumi.ResourceOptions(parent=parent),
    )


def subscription_of(resource_id: pulumi.Input[str]) -> pulumi.Output[str]:
    """The subscription in an ARM id."""
    return pulumi.Output.from_input(resource_id).apply(lambda text: text.split("/")[2])


def group_of(resource_id: str) -> str:
    """The id of the resource group in an ARM id."""
    return "/".join(resource_id.split("/")[:5])
