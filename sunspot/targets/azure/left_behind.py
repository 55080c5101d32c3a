"""What is left on Azure of a cluster that Pulumi does not know, after a change of its backend."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from sunspot.errors import NotUpError, SunspotError, UsageError
from sunspot.stack import Stack
from sunspot.targets.azure import missing_role, remaining
from sunspot.targets.azure.credentials import Endpoints, Login
from sunspot.targets.azure.settings import AzureSettings
from sunspot.targets.consent import LeftBehindError
from sunspot.targets.protocol import Progress, Removal
from sunspot.targets.records import BrokenRecordsError

if TYPE_CHECKING:
    from sunspot.targets.azure.automation import StackState
    from sunspot.targets.azure.records import Record, Records

# Azure's REST reference, "Resource Groups - Delete": 202 with a Location to poll, then 200.
GROUPS_VERSION = "2021-04-01"
# Azure deletes the machines of a group, its vault and its network; usually within ten minutes.
TIMEOUT_S = 3600.0

IN_PULUMI = "resource in Pulumi's state"
_STORAGE = "/microsoft.storage/storageaccounts/"

Ask = Callable[[str], list[str]]
"""Lists the ARM ids in a resource group; none if it does not exist."""


def may_be(record: Record | None, state: StackState | None) -> bool:
    """Whether a cluster that Pulumi does not know may exist on Azure all the same."""
    return state is None and record is not None and bool(record.group_id)


def not_up(name: str) -> NotUpError:
    """The error for a command that needs such a cluster."""
    return NotUpError(
        f"{_unknown(name)}, though it was up. `pulumi whoami -v` shows the backend that is asked; "
        f"whether anything is left on Azure: sunspot down {name}"
    )


def to_pulumi(name: str) -> UsageError:
    """The error for a stack of which Pulumi has made AKS, whatever its file says now."""
    from sunspot.targets.kubernetes.adopting import DESTROY  # late: it loads that target

    return UsageError(
        f"by Pulumi's state, stack {name!r} has an AKS cluster, which only Pulumi deletes, with "
        f"all that is in it: {DESTROY} {name}"
    )


def check(name: str, records: Records, ask: Ask, progress: Progress) -> Removal | None:
    """Forgets a cluster that Pulumi has nothing of, once Azure has nothing of it either.

    Returns:
        What was looked for; None if there is no record of the cluster.

    Raises:
        LeftBehindError: its resource group exists.
        SunspotError: Azure could not be asked.
    """
    if name not in records.names():
        return None
    record = _readable(name, records)
    if record is None or not record.group_id:
        records.forget(name)
        return Removal(looked_for=IN_PULUMI)
    progress("Pulumi has nothing of it; asking Azure whether its resource group exists")
    if found := _ask(name, record.group_id, ask):
        raise _left(name, record, found)
    records.forget(name)
    return Removal(looked_for=remaining.LOOKED_FOR)


def delete(
    name: str, records: Records, ask: Ask, progress: Progress, endpoints: Endpoints
) -> Removal:
    """Deletes a cluster's resource group with all that is in it, then looks what is left.

    Raises:
        NotUpError: no record of the cluster has a resource group.
        SunspotError: Azure refused, or needs longer than an hour.
    """
    record = records.known(name)
    if not record.group_id:
        raise NotUpError(f"the record of {name!r} has no resource group: nothing was deleted")
    records.tunnel(name).close()
    progress(f"deleting the resource group {_group(record)}, which takes Azure minutes")
    _delete(record.group_id, endpoints)
    progress("asking Azure what still exists")
    left = _ask(name, record.group_id, ask)
    if not left:
        records.forget(name)
    return Removal(
        looked_for=remaining.LOOKED_FOR, left=left, remedy=f"Delete it: {_command(record)}"
    )


def _delete(group_id: str, endpoints: Endpoints) -> None:
    from sunspot.node.azure.arm import Arm, ArmError

    login = Login(endpoints, subscription=group_id.split("/")[2])
    arm = Arm(login, endpoints.management)
    try:
        is_over = arm.wait(arm.send("DELETE", group_id, GROUPS_VERSION, None), TIMEOUT_S)
    except ArmError as error:
        if error.status == 404:
            return
        reason = missing_role.explained(str(error))
        raise SunspotError(f"Azure did not delete the resource group: {reason}") from error
    if not is_over:
        raise SunspotError(f"Azure needs more than {TIMEOUT_S:.0f} s to delete {group_id}")


def _readable(name: str, records: Records) -> Record | None:
    try:
        return records.read(name)
    except BrokenRecordsError:
        return None


def _ask(name: str, group_id: str, ask: Ask) -> list[str]:
    try:
        return ask(group_id)
    except SunspotError as error:
        raise SunspotError(
            f"whether anything of {name!r} is left on Azure could not be checked: {error}. Check "
            f"it yourself: az resource list --resource-group {group_id.rpartition('/')[2]} -o table"
        ) from error


def _left(name: str, record: Record, found: Sequence[str]) -> LeftBehindError:
    has_results = _protects(record) and any(_STORAGE in one.lower() for one in found)
    flags = "--yes --delete-storage" if has_results else "--yes"
    inside = [one for one in found if one != record.group_id]
    what = "1 resource" if len(inside) == 1 else f"{len(inside)} resources"
    results = ", the results among them," if has_results else ""
    here = (
        f"{_unknown(name)}, but Azure has its resource group {_group(record)}, with {what}. It "
        "may be billed. Nothing was deleted."
    )
    elsewhere = (
        "if Pulumi's backend was changed, log in to the one that has the stack (`pulumi whoami -v` "
        f"shows which is asked) and run: sunspot down {name}"
    )
    ways = (
        f"or delete the group{results} as a whole: sunspot down {name} {flags}",
        f"or by hand: {_command(record)}",
    )
    message = "\n  ".join((here, elsewhere, *ways))
    question = (
        f"Delete the resource group {_group(record)} with all that is in it{results.rstrip(',')}?"
    )
    return LeftBehindError(message, question=question, has_results=has_results)


def _protects(record: Record) -> bool:
    try:
        return AzureSettings.of(Stack.model_validate(record.stack)).storage.protect
    except ValueError:
        return True  # of an older version: rather ask once too often


def _unknown(name: str) -> str:
    return f"Pulumi has nothing of stack {name!r}"


def _group(record: Record) -> str:
    return record.group_id.rpartition("/")[2]


def _command(record: Record) -> str:
    subscription = record.group_id.split("/")[2]
    return f"az group delete --name {_group(record)} --subscription {subscription}"
