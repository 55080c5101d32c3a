"""Rights: whether who is logged in may create what a stack consists of, and assign its roles."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol

from sunspot.targets.azure import missing_role
from sunspot.targets.azure.doctor.clients import Clients
from sunspot.targets.azure.doctor.findings import failure, ok, warning
from sunspot.targets.azure.doctor.types import arm_types
from sunspot.targets.azure.plan import AzurePlan
from sunspot.targets.protocol import Finding

RIGHTS = "rights"

ASSIGN = "Microsoft.Authorization/roleAssignments/write"
DEFINE = "Microsoft.Authorization/roleDefinitions/write"


class Permission(Protocol):
    """A role's actions, and those that it leaves out of them."""

    actions: list[str] | None
    not_actions: list[str] | None


@dataclass(frozen=True, kw_only=True)
class Rights:
    """The permissions of all roles of a principal; `conditional` are those under a condition."""

    plain: tuple[Permission, ...]
    conditional: tuple[Permission, ...]

    def allows(self, action: str) -> bool:
        """Whether some role allows the action, with or without a condition."""
        return any(_allows(one, action) for one in (*self.plain, *self.conditional))

    def under_condition(self, action: str) -> bool:
        """Whether only roles with a condition allow the action."""
        return self.allows(action) and not any(_allows(one, action) for one in self.plain)


def check(azure: Clients, plan: AzurePlan, group: str | None) -> Iterator[Finding]:
    """Whether every resource of the plan may be created, its roles defined and assigned.

    Args:
        azure: Azure's clients.
        plan: the plan.
        group: the stack's resource group if it exists, whose own assignments then count too.
    """
    has = _rights(azure, group)
    needed = [f"{kind}/write" for kind in arm_types(plan)]
    create = [one for one in needed if not one.startswith("Microsoft.Authorization/")]
    missing = [action for action in create if not has.allows(action)]
    if missing:
        yield failure(
            RIGHTS,
            f"you may not create {len(missing)} of {len(create)} types of resources, such as "
            f"{missing[0]}",
            _to_grant(azure, "Contributor"),
        )
    else:
        yield ok(RIGHTS, f"you may create all {len(create)} types of resources")
    yield _roles(azure, has, [one for one in (ASSIGN, DEFINE) if one in needed])


def _roles(azure: Clients, has: Rights, needed: list[str]) -> Finding:
    name = f"{RIGHTS} to give rights"
    if missing := [action for action in needed if not has.allows(action)]:
        # Role Based Access Control Administrator may assign roles, but not define them.
        return failure(
            name,
            f"you may not do {' and '.join(missing)}, which the cluster's identities need",
            _to_grant(azure, "User Access Administrator"),
        )
    if held := [action for action in needed if has.under_condition(action)]:
        return warning(
            name,
            f"{' and '.join(held)} only under a condition, which may refuse the roles that the "
            "cluster's identities get",
            f"az role assignment list --scope {azure.scope} --include-inherited -o json shows it",
        )
    return ok(name, "you may assign roles" + (" and define them" if DEFINE in needed else ""))


def _to_grant(azure: Clients, role: str) -> str:
    command = missing_role.grant(role, azure.scope, azure.principal())
    return f"ask an owner of the subscription: {command}"


def _rights(azure: Clients, group: str | None) -> Rights:
    """What the principal's roles allow in the subscription, or in the stack's own group.

    Role Assignments - List For Scope with `assignedTo` also has those of the principal's groups,
    and those of management groups above; the permissions API is only for a group that exists.
    """
    client = azure.rights
    scopes = [f"{azure.scope}/resourceGroups/{group}"] if group else []
    plain: list[Permission] = []
    conditional: list[Permission] = []
    found = client.role_assignments.list_for_scope(
        azure.scope, filter=f"assignedTo('{azure.principal()}')"
    )
    for assignment in found:
        if not _applies(str(assignment.scope), azure.scope, scopes):
            continue
        role = client.role_definitions.get_by_id(str(assignment.role_definition_id))
        into = conditional if assignment.condition else plain
        into += role.permissions or ()
    return Rights(plain=tuple(plain), conditional=tuple(conditional))


def _applies(scope: str, subscription: str, scopes: Iterable[str]) -> bool:
    """Whether an assignment holds in the subscription, and not only in a part of it."""
    scope = scope.lower().rstrip("/")
    is_below = scope.startswith(f"{subscription.lower()}/")
    return not is_below or scope in {one.lower() for one in scopes}


def _allows(permission: Permission, action: str) -> bool:
    return _covers(permission.actions, action) and not _covers(permission.not_actions, action)


def _covers(patterns: Iterable[str] | None, action: str) -> bool:
    return any(
        re.fullmatch(re.escape(pattern).replace(r"\*", ".*"), action, re.IGNORECASE)
        for pattern in patterns or ()
    )
