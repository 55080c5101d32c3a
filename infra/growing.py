"""A set that Ray's autoscaler has made larger while an update runs is not made smaller by it.

Azure's provider writes a whole set, with the capacity that the refresh before an update has read,
and a lower one deletes machines that run (dataplat/dbatools#10540). Copying an image takes minutes
in between.
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

import pulumi
from pulumi.runtime.proto.resource_pb2 import RESOURCE_MONITOR_FEATURE_RESOURCE_HOOKS
from pulumi.runtime.settings import monitor_supports_feature

ReadCapacity = Callable[[str], int | None]
"""Reads the capacity of a scale set by its ARM id; None where Azure does not say it."""


def keep_machines(read: ReadCapacity | None) -> pulumi.ResourceHookBinding | None:
    """Ends an update of a set that would delete machines; None if the `pulumi` command cannot.

    To be made once in a program.

    Args:
        read: reads a set's capacity; without it, nothing is checked.
    """
    if read is None or not monitor_supports_feature(RESOURCE_MONITOR_FEATURE_RESOURCE_HOOKS):
        return None

    async def check(update: pulumi.ResourceHookArgs) -> None:
        refuse_fewer(update.new_inputs or {}, await asyncio.to_thread(read, update.id), update.id)

    hook = pulumi.ResourceHook("sunspot-keep-machines", check)
    return pulumi.ResourceHookBinding(before_update=[hook])


def refuse_fewer(written: Mapping[str, Any], now: int | None, identifier: str) -> None:
    """Refuses to write a set with a lower capacity than it has.

    Args:
        written: the set's inputs.
        now: the capacity that it has now, if that is known.
        identifier: its ARM id.

    Raises:
        RunError: it has more machines than it would be written with.
    """
    capacity = int((written.get("sku") or {}).get("capacity") or 0)
    if now is not None and now > capacity:
        raise pulumi.RunError(
            f"{identifier.rpartition('/')[2]} has grown from {capacity} to {now} machines while "
            "this update ran, which would delete the new ones: run the same command again"
        )
