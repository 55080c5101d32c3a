"""Role assignments: who may do what, and where."""

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pulumi
from pulumi_azure_native import authorization

from sunspot.targets.azure.tree import Resource

# Azure's own roles, by their ids, which are the same in every subscription.
ACR_PULL = "7f951dda-4ed3-4680-a7ca-43fe172d538d"
BLOB_DATA_CONTRIBUTOR = "ba92f5b4-2d11-453d-a403-e96b0029c9fe"
KEY_VAULT_SECRETS_USER = "4633458b-17de-408a-b874-0445c86b69e6"

_NAMES = uuid.UUID("6f2b7d0e-6c0b-5d8e-9a43-0f1d5b8c2e77")


@dataclass(frozen=True, kw_only=True)
class OwnRole:
    """A role that Azure does not have: the actions that are used, each with its reason."""

    key: str
    description: str
    actions: Mapping[str, str]


SCALER = OwnRole(
    key="scaler",
    description="Grows scale sets and deletes single machines of them",
    actions={
        "Microsoft.Compute/virtualMachineScaleSets/read": "the capacity that is to be raised",
        "Microsoft.Compute/virtualMachineScaleSets/write": "raises the capacity",
        "Microsoft.Compute/virtualMachineScaleSets/delete/action": "deletes idle machines by name",
        # Azure asks for these three on what the set's machines are made with.
        "Microsoft.Network/virtualNetworks/subnets/join/action": "new machines join the subnet",
        "Microsoft.Network/networkSecurityGroups/join/action": "and stand behind its rules",
        "Microsoft.ManagedIdentity/userAssignedIdentities/assign/action": "and get an identity",
    },
)
READER = OwnRole(
    key="reader",
    description="Lists the machines of a resource group",
    actions={
        # By the group: a Flexible set's machines are not below it, and have no list of their own.
        "Microsoft.Compute/virtualMachines/read": "which machines there are, and their states",
    },
)


def define(
    declared: Resource,
    role: OwnRole,
    *,
    scopes: Sequence[pulumi.Input[str]],
    owner: pulumi.Input[str],
    parent: pulumi.Resource,
) -> authorization.RoleDefinition:
    """Makes a role of ours, assignable in these resource groups, the cluster's own first.

    A role's name must be unique in the whole directory, so it says whose it is: `owner`, the
    resource group's name.
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
    """Gives a managed identity one of Azure's own roles, by its id, at a scope."""
    scope = pulumi.Output.from_input(scope)
    definition = pulumi.Output.concat(
        "/subscriptions/",
        subscription_of(scope),
        "/providers/Microsoft.Authorization/roleDefinitions/",
        role,
    )
    return _assign(declared, principal_id, definition, scope, key=role, parent=parent)


def assign_own(
    declared: Resource,
    *,
    principal_id: pulumi.Input[str],
    role: authorization.RoleDefinition,
    scope: pulumi.Input[str],
    parent: pulumi.Resource,
) -> authorization.RoleAssignment:
    """Gives a managed identity a role of ours at a scope."""
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
    """The assignment's name follows from principal, role and scope.

    So a repeated creation finds it again, and another principal (the same identity made anew) gets
    another name, as Azure demands.
    """
    return authorization.RoleAssignment(
        declared.name,
        role_assignment_name=pulumi.Output.all(scope, principal_id, key).apply(
            lambda parts: str(uuid.uuid5(_NAMES, "|".join(parts).lower()))
        ),
        principal_id=principal_id,
        # Without the type, Azure refuses an identity that has not reached all of its directory.
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
