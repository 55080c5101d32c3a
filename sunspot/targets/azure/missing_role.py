"""A right that Azure says is missing: the role that has it, and the command that grants it."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass

# ARM's own words, with AuthorizationFailed (Microsoft's "Troubleshoot Azure RBAC"; as printed in
# Azure/azure-cli#20727), and with LinkedAuthorizationFailed (Azure/aad-pod-identity#613).
_FAILED = re.compile(
    r"object id '(?P<who>[^']+)' does not have authorization to perform action '(?P<action>[^']+)' "
    r"over scope '(?P<scope>[^']+)'",
    re.IGNORECASE,
)
_LINKED = re.compile(
    r"object id '(?P<who>[^']+)' has permission to perform action .*?does not have permission to "
    r"perform action\(?s?\)? '(?P<action>[^']+)' on the linked scope\(?s?\)? '(?P<scope>[^']+)'",
    re.IGNORECASE | re.DOTALL,
)

CONTRIBUTOR = "Contributor"
# Actions -> the built-in role to ask for (docs/azure.md > Rights); by default Contributor.
_ROLES = (
    (
        r"Microsoft\.Authorization/role(?:Definitions|Assignments)/(?:write|delete)",
        "User Access Administrator",
    ),
    (r"Microsoft\.Network/virtualNetworks/subnets/join/action", "Network Contributor"),
    (
        r"Microsoft\.ManagedIdentity/userAssignedIdentities/assign/action",
        "Managed Identity Operator",
    ),
    (r".*/read", "Reader"),
)
# A stack makes things all over the subscription; for other roles, Azure's own scope is enough.
_OF_SUBSCRIPTION = frozenset({CONTRIBUTOR, "User Access Administrator"})
_SUBSCRIPTION = re.compile(r"/subscriptions/[^/]+")


@dataclass(frozen=True, kw_only=True)
class MissingRight:
    """What Azure refused.

    Attributes:
        who: the object id of who asked.
        action: what they may not do.
        scope: the ARM id of where.
    """

    who: str
    action: str
    scope: str

    @property
    def role(self) -> str:
        """The built-in role to ask for."""
        found = (role for action, role in _ROLES if re.fullmatch(action, self.action, re.I))
        return next(found, CONTRIBUTOR)

    @property
    def granted_on(self) -> str:
        """The ARM id of where to have it."""
        subscription = _SUBSCRIPTION.match(self.scope)
        if subscription is not None and self.role in _OF_SUBSCRIPTION:
            return subscription[0]
        return self.scope

    @property
    def command(self) -> str:
        """What an owner types to grant it."""
        return grant(self.role, self.granted_on, self.who)

    def __str__(self) -> str:
        return (
            f"you may not do {self.action} on {self.scope}. The role {self.role!r} on "
            f"{self.granted_on} allows it; an owner of that grants it, and Azure takes minutes to "
            f"know it: {self.command}"
        )


def grant(role: str, scope: str, who: str) -> str:
    """The command that gives a role.

    Args:
        role: the role's name.
        scope: the ARM id of where it holds.
        who: an object id, or the name of a user or a service principal.
    """
    words = ("az", "role", "assignment", "create", "--assignee", who)
    return shlex.join([*words, "--role", role, "--scope", scope])


def find(text: str) -> MissingRight | None:
    """The right that an error of Azure's names; None if it names none."""
    found = _FAILED.search(text) or _LINKED.search(text)
    return None if found is None else MissingRight(**found.groupdict())


def explained(text: str) -> str:
    """The error, with what to do about it if a right is missing."""
    missing = find(text)
    return text if missing is None else f"{text}. That is: {missing}"
