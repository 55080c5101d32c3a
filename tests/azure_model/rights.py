"""Who may do what in Azure, by the roles and assignments of a program."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from azure_model.answers import principal_of
from azure_model.resource_ids import is_within, name_in

if TYPE_CHECKING:  # needs Pulumi
    from azure_model.pulumi_mocks import Run

# The actions of built-in roles on compute, network and identities, by their ids. Source:
# Microsoft's pages "Azure built-in roles for Compute" and "Azure built-in roles for Identity".
BUILT_IN = {
    "9980e02c-c2be-4d73-94e8-173b1dc7cf3c": (  # Virtual Machine Contributor
        "Microsoft.Compute/virtualMachines/*",
        "Microsoft.Compute/virtualMachineScaleSets/*",
        "Microsoft.Compute/disks/write",
        "Microsoft.Compute/disks/read",
        "Microsoft.Compute/disks/delete",
        "Microsoft.Network/networkInterfaces/*",
        "Microsoft.Network/networkSecurityGroups/join/action",
        "Microsoft.Network/networkSecurityGroups/read",
        "Microsoft.Network/virtualNetworks/read",
        "Microsoft.Network/virtualNetworks/subnets/join/action",
    ),
    "f1a07417-d97a-45cb-824c-7a7467783830": (  # Managed Identity Operator
        "Microsoft.ManagedIdentity/userAssignedIdentities/*/read",
        "Microsoft.ManagedIdentity/userAssignedIdentities/*/assign/action",
    ),
}


@dataclass(frozen=True)
class Grant:
    """Actions, which may contain `*`, at a scope and everything below it."""

    actions: tuple[str, ...]
    scope: str

    def allows(self, action: str, scope: str) -> bool:
        """Whether an action is allowed on a resource; Azure compares without case."""
        wanted = action.lower()
        # `userAssignedIdentities/*/assign/action` covers `userAssignedIdentities/assign/action`.
        patterns = {one.lower() for one in self.actions}
        patterns |= {one.replace("/*/", "/") for one in patterns}
        return is_within(scope.lower(), self.scope.lower()) and any(
            fnmatchcase(wanted, one) for one in patterns
        )


@dataclass(frozen=True)
class Rights:
    """All grants of one principal."""

    grants: tuple[Grant, ...]

    def allows(self, action: str, scope: str) -> bool:
        """Whether any grant allows an action on a resource."""
        return any(grant.allows(action, scope) for grant in self.grants)

    def without(self, action: str) -> Rights:
        """The same without an action."""
        return Rights(
            tuple(
                Grant(tuple(one for one in grant.actions if one != action), grant.scope)
                for grant in self.grants
            )
        )


def rights_of(run: Run, identity: str) -> Rights:
    """What a program gives to one of its managed identities, named by the end of its name."""
    (found,) = [i for i in run.of("UserAssignedIdentity") if i.name.endswith(f"-{identity}")]
    roles = dict(BUILT_IN)
    for role in run.of("RoleDefinition"):
        permissions: Iterable[dict[str, list[str]]] = role.inputs["permissions"]
        roles[name_in(role.id)] = tuple(a for p in permissions for a in p["actions"])
    principal = principal_of(found.id)
    return Rights(
        tuple(
            Grant(roles.get(name_in(one.inputs["roleDefinitionId"]), ()), one.inputs["scope"])
            for one in run.of("RoleAssignment")
            if one.inputs["principalId"] == principal
        )
    )
