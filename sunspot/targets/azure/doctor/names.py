"""Global names: whether those that the stack would take are free.

Pulumi adds random characters to a resource's name, so that there is nothing to check, unless the
stack's `pulumi:autonaming` says otherwise.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sunspot.stack import PROJECT_FILE
from sunspot.targets.azure import stack_file
from sunspot.targets.azure.doctor.clients import Clients
from sunspot.targets.azure.doctor.findings import failure, ok
from sunspot.targets.azure.doctor.types import ARM_TYPES
from sunspot.targets.azure.plan import AzurePlan
from sunspot.targets.azure.tree import NATIVE, tree
from sunspot.targets.protocol import Finding

NAMES = "global names"
AUTONAMING = "pulumi:autonaming"
TO_RENAME = f"remove {AUTONAMING}, so that Pulumi adds random characters, or choose another name"

VERBATIM = "${name}"
# What makes a name random (Pulumi, "Auto-naming configuration").
_RANDOM = re.compile(r"\$\{(?:hex|alphanum|string|num|uuid)\b")


@dataclass(frozen=True, kw_only=True)
class Asking:
    """How Azure is asked for names of one stack.

    Attributes:
        azure: Azure's clients.
        plan: the stack's plan.
        group: the stack's resource group if it exists; what is in it is its own.
    """

    azure: Clients
    plan: AzurePlan
    group: str | None

    def available(self, kind: str, name: str) -> Any:
        """Azure's answer on a name of that type of resource."""
        azure = self.azure
        ask: dict[str, Callable[[Any], Any]] = {
            "keyvault:Vault": azure.vaults.vaults.check_name_availability,
            "storage:StorageAccount": azure.storage.storage_accounts.check_name_availability,
            "containerregistry:Registry": azure.registries.registries.check_name_availability,
        }
        return ask[kind]({"name": name, "type": ARM_TYPES[kind]})


GLOBAL = ("keyvault:Vault", "storage:StorageAccount", "containerregistry:Registry")


def taken(asking: Asking, folder: Path) -> Iterator[Finding]:
    """Whether the names of vault, storage account and registry are free.

    `folder` is the project's.
    """
    pattern = _pattern(asking.plan.stack, folder)
    if pattern is None:
        yield ok(NAMES, "Pulumi adds random characters to each, so that none is taken")
        return
    for resource in tree(asking.plan).walk():
        kind = resource.type.removeprefix(NATIVE)
        if kind in GLOBAL:
            yield _checked(asking, kind, _filled(pattern, resource.name, asking.plan.stack, folder))


def _filled(pattern: str, resource: str, stack: str, folder: Path) -> str:
    project = str(stack_file.top(folder / PROJECT_FILE).get("name"))
    for word, value in (("name", resource), ("stack", stack), ("project", project)):
        pattern = pattern.replace(f"${{{word}}}", value)
    return pattern


def _checked(asking: Asking, kind: str, name: str) -> Finding:
    check = f"name {name} ({kind.partition(':')[2]})"
    answer = asking.available(kind, name)
    if answer.name_available:
        return ok(check, "is free")
    if asking.group and name.lower() in _own(asking.azure, asking.group):
        return ok(check, "is this stack's own")
    if kind == "keyvault:Vault" and (gone := _soft_deleted(asking, name)) is not None:
        return gone
    said = answer.message or getattr(answer.reason, "value", answer.reason)
    return failure(check, f"is taken: {said}", TO_RENAME)


def _own(azure: Clients, group: str) -> set[str]:
    listed = azure.resources.resources.list_by_resource_group(group)
    return {str(one.name).lower() for one in listed}


def _soft_deleted(asking: Asking, name: str) -> Finding | None:
    """The finding on a vault that this subscription has deleted, and that keeps its name."""
    from azure.core.exceptions import ResourceNotFoundError

    location = asking.plan.location
    try:
        vault = asking.azure.vaults.vaults.get_deleted(name, location)
    except ResourceNotFoundError:
        return None
    check, has = f"name {name} (Vault)", vault.properties
    until = has.scheduled_purge_date if has else None
    day = until.date().isoformat() if until else "a day that Azure does not say"
    if has and has.purge_protection_enabled:
        return failure(check, f"is kept by a soft-deleted vault until {day}", TO_RENAME)
    return failure(
        check,
        f"is kept by a soft-deleted vault until {day}",
        f"az keyvault purge --name {name} --location {location}",
    )


def _pattern(stack: str, folder: Path) -> str | None:
    """The pattern of the stack's names; None if they contain random characters."""
    for file in (f"Pulumi.{stack}.yaml", PROJECT_FILE):
        given = stack_file.config(folder / file).get(AUTONAMING)
        given = given.get("value", given) if isinstance(given, dict) else given
        if not isinstance(given, dict):
            continue  # Pulumi says what is wrong with it
        if given.get("mode") == "verbatim":
            return VERBATIM
        pattern = given.get("pattern")
        return None if pattern is None or _RANDOM.search(str(pattern)) else str(pattern)
    return None
