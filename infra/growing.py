"""A set that Ray's autoscaler has resized while an update runs is not written with its old size.

Azure's provider writes a whole set, with the capacity that the refresh before an update has read.
A lower one deletes machines that run (dataplat/dbatools#10540), a higher one makes machines that
nobody needs. Copying an image takes minutes in between. A moment remains between this look and the
provider's request.
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

import pulumi
from pulumi.runtime.proto.resource_pb2 import RESOURCE_MONITOR_FEATURE_RESOURCE_HOOKS
from pulumi.runtime.settings import monitor_supports_feature

from sunspot.errors import SunspotError

ReadCapacity = Callable[[str], int | None]
"""Reads the capacity of a scale set by its ARM id; None without a login to ask with.

It raises SunspotError where Azure does not say it.
"""


def keep_machines(read: ReadCapacity | None) -> pulumi.ResourceHookBinding | None:
    """Ends an update of a set that was resized meanwhile; None if the `pulumi` command cannot.

    To be made once in a program.

    Args:
        read: reads a set's capacity; without it, nothing is checked.
    """
    if read is None or not monitor_supports_feature(RESOURCE_MONITOR_FEATURE_RESOURCE_HOOKS):
        return None

    async def check(update: pulumi.ResourceHookArgs) -> None:
        await asyncio.to_thread(refuse_resized, update.new_inputs or {}, read, update.id)

    hook = pulumi.ResourceHook("sunspot-keep-machines", check)
    return pulumi.ResourceHookBinding(before_update=[hook])


def refuse_resized(written: Mapping[str, Any], read: ReadCapacity, identifier: str) -> None:
    """Refuses to write a set with another capacity than it has.

    Without a login to ask with, it warns: the provider may have one of its own, in the stack file.

    Args:
        written: the set's inputs.
        read: reads the capacity that it has now.
        identifier: its ARM id.

    Raises:
        RunError: it has other machines than it would be written with, or Azure does not say it.
    """
    name = identifier.rpartition("/")[2]
    capacity = int((written.get("sku") or {}).get("capacity") or 0)
    try:
        now = read(identifier)
    except SunspotError as error:
        raise pulumi.RunError(
            f"cannot see how many machines {name} has now, so it is not written with "
            f"{capacity}: run the same command again. {error}"
        ) from error
    if now is None:
        pulumi.log.warn(
            f"cannot see how many machines {name} has now, and sets it to {capacity}: Sunspot has "
            "no login to ask Azure with (docs/changes.md)"
        )
    elif now != capacity:
        raise pulumi.RunError(
            f"{name} went from {capacity} to {now} machines meanwhile, which would be undone: "
            "run the same command again"
        )
