"""What still exists of a stack that was destroyed, and what was kept on purpose."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from sunspot.errors import SunspotError
from sunspot.targets.azure import inventory
from sunspot.targets.azure.inventory import Endpoints
from sunspot.targets.protocol import Removal

if TYPE_CHECKING:
    from sunspot.targets.azure.automation import Resource

LOOKED_FOR = "resource on Azure"


def remaining(group_id: str, endpoints: Endpoints | None = None) -> list[str]:
    """The ARM ids of all that is in a resource group; the group's own if it is empty.

    An empty list says that the group is gone. Raises SunspotError where Azure could not be asked.
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
    """What became of a destroyed stack, whose state still has the resources in `kept`.

    Raises SunspotError if Azure cannot be asked what is left.
    """
    protected = told(name, [one.id for one in kept if one.protected])
    if group_id is None:
        return Removal(looked_for=LOOKED_FOR, kept=protected)
    group = group_id.rpartition("/")[2]
    try:
        found = ask(group_id)
    except SunspotError as error:
        raise SunspotError(
            f"Pulumi destroyed {name!r}, but whether anything is left could not be checked: "
            f"{error}. Look yourself: az resource list --resource-group {group} -o table"
        ) from error
    left = [one for one in found if not _belongs(one, [resource.id for resource in kept])]
    return Removal(
        looked_for=LOOKED_FOR,
        kept=protected,
        left=left,
        remedy=f"It may be billed. If none of it is needed: az group delete --name {group}",
    )


def _belongs(found: str, kept: list[str]) -> bool:
    """Whether a resource is one of those that were kept, or holds or lies in one."""
    this = found.lower().rstrip("/")
    others = [one.lower().rstrip("/") for one in kept]
    return any(this == one or this.startswith(f"{one}/") for one in others if "/providers/" in one)


def told(name: str, protected: list[str]) -> list[str]:
    """What is said of the resources (ARM ids) that outlive a stack; nothing if there are none."""
    if not protected:
        return []
    # The account; what lies in it goes without saying.
    outermost = [
        i for i in protected if not _belongs(i, [other for other in protected if other != i])
    ]
    ids = ", ".join(i.rpartition("/")[2] for i in outermost)
    what = f"kept, as sunspot:storage > protect says: the results ({ids}) in their resource group"
    how = f"they are billed by the GB; to delete them too: sunspot down {name} --delete-storage"
    return [what, how]
