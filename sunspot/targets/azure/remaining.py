"""What is left of a destroyed stack, and what was kept on purpose."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from sunspot.errors import SunspotError
from sunspot.targets.azure import inventory
from sunspot.targets.azure.credentials import Endpoints
from sunspot.targets.protocol import Removal

if TYPE_CHECKING:
    from sunspot.targets.azure.automation import Resource

LOOKED_FOR = "resource on Azure"


def remaining(group_id: str, endpoints: Endpoints | None = None) -> list[str]:
    """The ARM ids of a resource group's resources; the group's own id if it is empty.

    An empty list means that the group does not exist.

    Raises:
        SunspotError: Azure could not be asked.
    """
    found = inventory.items(group_id, inventory.RESOURCES, endpoints)
    if found is None:
        return []
    return [one["id"] for one in found] or [group_id]


def removal(
    name: str,
    group_id: str | None,
    kept: Sequence[Resource],
    ask: Callable[[str], list[str]] = remaining,
) -> Removal:
    """The result of destroying a stack.

    Args:
        name: the stack's name.
        group_id: the ARM id of its resource group; None if it had none.
        kept: the resources that the stack's state still has.
        ask: lists what is left in the resource group.

    Raises:
        SunspotError: Azure could not be asked what is left.
    """
    protected = kept_sentences(name, [one.id for one in kept if one.protected])
    if group_id is None:
        return Removal(looked_for=LOOKED_FOR, kept=protected)
    group = group_id.rpartition("/")[2]
    try:
        found = ask(group_id)
    except SunspotError as error:
        raise SunspotError(
            f"Pulumi destroyed {name!r}, but whether anything is left could not be checked: "
            f"{error}. Check it yourself: az resource list --resource-group {group} -o table"
        ) from error
    left = [one for one in found if not _belongs(one, [resource.id for resource in kept])]
    return Removal(
        looked_for=LOOKED_FOR,
        kept=protected,
        left=left,
        remedy=f"It may be billed. If none of it is needed: az group delete --name {group}",
    )


def _belongs(found: str, kept: list[str]) -> bool:
    """Whether a resource is one of those that were kept, or inside one of them."""
    this = found.lower().rstrip("/")
    others = [one.lower().rstrip("/") for one in kept]
    return any(this == one or this.startswith(f"{one}/") for one in others if "/providers/" in one)


def kept_sentences(name: str, protected: list[str]) -> list[str]:
    """The sentences about the protected resources (ARM ids) of a destroyed stack, if any."""
    if not protected:
        return []
    # The storage account, without the resources inside it.
    outermost = [
        i for i in protected if not _belongs(i, [other for other in protected if other != i])
    ]
    ids = ", ".join(i.rpartition("/")[2] for i in outermost)
    what = f"kept, as sunspot:storage > protect says: the results ({ids}) in their resource group"
    how = f"they are billed by the GB; to delete them too: sunspot down {name} --delete-storage"
    return [what, how]


def after_up(name: str) -> str:
    """What an `up` that did not end leaves, and what to do with it."""
    return (
        f"What was created still exists and is billed. Continue: sunspot up {name} · "
        f"remove it: sunspot down {name}"
    )
