"""What the cluster that runs has and its stack file does not: an update says so.

What was scaled by hand is kept; the workers of groups that leave end with what runs on them.
"""

import asyncio
from collections.abc import Callable

import pulumi

from sunspot.errors import SunspotError
from sunspot.node.azure.live import LiveSettings
from sunspot.spec_values import HEAD
from sunspot.targets.azure import by_hand
from sunspot.targets.azure.head import vm_of
from sunspot.targets.azure.plan import AzurePlan

ReadSettings = Callable[[str], LiveSettings | None]
"""Reads the settings of a cluster by the ARM id of its head's VM; None if there is no such VM.

It raises SunspotError without a login, or an answer.
"""


def running_settings(
    plan: AzurePlan, group_id: pulumi.Output[str], read: ReadSettings | None
) -> pulumi.Output[LiveSettings | None]:
    """The settings of the cluster that runs; None if there is none, or it cannot be read.

    It is not a call of the provider's: one that fails ends the program, and the first update has
    no VM to read. A preview of that knows no resource group either, and still shows every number.
    """
    return pulumi.Output.from_input(_read(plan, group_id, read))


async def _read(
    plan: AzurePlan, group_id: pulumi.Output[str], read: ReadSettings | None
) -> LiveSettings | None:
    known = None if read is None else await group_id.future()
    if read is None or known is None:
        return None
    vm = vm_of(known, plan.head_name)
    try:
        found = await asyncio.to_thread(read, vm)
        groups = plan.cluster.scaling_groups
        lines = [] if found is None else by_hand.told(found, groups, plan.stack)
        if found is not None and (gone := by_hand.left_out(found, _node_types(plan))):
            lines.append(_cut_off(gone, plan.stack))
    except SunspotError as error:
        pulumi.log.warn(
            "cannot see which groups were scaled by hand, so they get the sizes of "
            f"Pulumi.{plan.stack}.yaml: {error}"
        )
        return None
    for line in lines:
        pulumi.log.warn(line)
    return found


def _node_types(plan: AzurePlan) -> set[str]:
    return {HEAD, *(pool.node_type for pool in plan.pools)}


def _cut_off(gone: list[str], stack: str) -> str:
    """What becomes of workers whose scale sets this update deletes, and how to avoid it.

    A program of Pulumi's cannot wait for them, as `sunspot up` does.
    """
    called = ", ".join(gone)
    return (
        f"workers of {called} are deleted with what runs on them, if there are any. To let it end "
        f"first: sunspot up {stack} · or set their maximum to 0 before they leave the file: "
        f"sunspot scale {stack} {gone[0]}=0:0"
    )
