"""Role assignments: who may do what, and where."""

import uuid

import pulumi
from pulumi_azure_native import authorization

# Azure's own roles, by their ids, which are the same in every subscription.
ACR_PULL = "7f951dda-4ed3-4680-a7ca-43fe172d538d"
BLOB_DATA_CONTRIBUTOR = "ba92f5b4-2d11-453d-a403-e96b0029c9fe"
KEY_VAULT_SECRETS_USER = "4633458b-17de-408a-b874-0445c86b69e6"
MANAGED_IDENTITY_OPERATOR = "f1a07417-d97a-45cb-824c-7a7467783830"
VIRTUAL_MACHINE_CONTRIBUTOR = "9980e02c-c2be-4d73-94e8-173b1dc7cf3c"

_NAMES = uuid.UUID("6f2b7d0e-6c0b-5d8e-9a43-0f1d5b8c2e77")


def assign(
    name: str,
    *,
    principal_id: pulumi.Input[str],
    role: str,
    scope: pulumi.Input[str],
    parent: pulumi.Resource,
) -> authorization.RoleAssignment:
    """Gives a managed identity a role at a scope.

    The assignment's name follows from all three, so that a repeated creation finds it again, and
    another principal (the same identity made anew) gets another name, as Azure demands.
    """
    scope = pulumi.Output.from_input(scope)
    return authorization.RoleAssignment(
        name,
        role_assignment_name=pulumi.Output.all(scope, principal_id).apply(
            lambda parts: str(uuid.uuid5(_NAMES, "|".join([*parts, role]).lower()))
        ),
        principal_id=principal_id,
        # Without the type, Azure refuses an identity that has not reached all of its directory.
        principal_type=authorization.PrincipalType.SERVICE_PRINCIPAL,
        role_definition_id=pulumi.Output.concat(
            "/subscriptions/",
            subscription_of(scope),
            "/providers/Microsoft.Authorization/roleDefinitions/",
            role,
        ),
        scope=scope,
        opts=pulumi.ResourceOptions(parent=parent),
    )


def subscription_of(resource_id: pulumi.Input[str]) -> pulumi.Output[str]:
    """The subscription in an ARM id."""
    return pulumi.Output.from_input(resource_id).apply(lambda text: text.split("/")[2])
