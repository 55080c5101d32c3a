"""Scaling by hand: workers that compose.yaml has are started, or drained and removed."""

from __future__ import annotations

import time
from collections.abc import Mapping

from sunspot.errors import SunspotError, UsageError
from sunspot.ray.handle import ClusterHandle
from sunspot.signals import uninterrupted
from sunspot.stack import Stack
from sunspot.targets import abilities
from sunspot.targets.compose import starting
from sunspot.targets.compose.engine import Engine, end_recorded
from sunspot.targets.compose.records import Record, Records
from sunspot.targets.protocol import UP_TIMEOUT_S, Progress, silent
from sunspot.targets.scaling import Size

# Ray drains a node for up to 30 s when it is told to stop (`sigterm_drain_s` in ray/start.py).
STOP_TIMEOUT_S = 45


def check(stack: Stack, record: Record, sizes: Mapping[str, Size]) -> None:
    """Checks that groups can have these sizes.

    Raises:
        UsageError: there is no such group, or the host cannot hold so many.
    """
    for name, size in sizes.items():
        here, most = len(record.of_group(name)), abilities.group(stack, name).max_workers
        if not 0 <= size.minimum <= size.highest <= here:
            why = (
                f"its max_workers; raise max_workers in Pulumi.{stack.name}.yaml, then take the "
                "stack down and bring it up again"
                if here == most
                else f"for which this host has GPUs and memory; its max_workers is {most}"
            )
            raise UsageError(f"group {name!r}: {size} is outside 0 to {here}, {why}")


def sizes(stack: Stack, record: Record) -> dict[str, Size]:
    """How many workers each group is to have: numbers, since there is no autoscaler."""
    return {
        group.name: Size(minimum=len(set(record.of_group(group.name)) & set(record.wanted)))
        for group in stack.cluster.scaling_groups
    }


def scale(
    records: Records, handle: ClusterHandle, group: str, size: Size, progress: Progress
) -> None:
    """Gives a group a size, a range by the nearest number. The caller holds the cluster's lock."""
    record = records.known(handle.name)
    end_recorded(records.folder(handle.name), progress)
    of_group = record.of_group(group)
    running = [name for name in of_group if name in record.wanted]
    count = size.nearest(len(running))
    if count > len(running):
        free = [name for name in of_group if name not in record.wanted]
        _start(records, record, handle, free[: count - len(running)], progress)
    elif count < len(running):
        _stop(records, record, handle.name, running[count:], progress)


def _start(
    records: Records, record: Record, handle: ClusterHandle, names: list[str], progress: Progress
) -> None:
    """Starts workers. Whatever stops that, the group has what it had before."""
    name, before = handle.name, record.wanted
    engine, folder = Engine(record.engine), records.folder(name)
    deadline = time.monotonic() + UP_TIMEOUT_S
    try:
        # First, so that `down` and `status` know of them whatever happens.
        record = records.change(name, wanted=(*before, *names))
        starting.start(engine, record, folder, progress, UP_TIMEOUT_S, only=names)
        starting.wait_until_joined(handle, names, deadline)
    except BaseException as error:
        with uninterrupted():
            records.change(name, wanted=before)
            error.add_note(_taken_away(engine, record, records, name, names))
        raise


def _taken_away(
    engine: Engine, record: Record, records: Records, name: str, names: list[str]
) -> str:
    """Removes what a start that failed has left, and says what became of it."""
    try:
        _remove(engine, record, records, name, names, silent, timeout_s=1)
    except SunspotError as error:
        return f"{', '.join(names)} could not be taken away ({error}); see docker ps"
    return f"{', '.join(names)}: taken away again"


def _stop(
    records: Records, record: Record, name: str, names: list[str], progress: Progress
) -> None:
    """Stops workers; Ray drains each first, so that running tasks can end."""
    engine = Engine(record.engine)
    progress(f"draining {', '.join(names)} (at most 30 s)")
    left = tuple(one for one in record.wanted if one not in names)
    try:
        _remove(engine, record, records, name, names, progress, timeout_s=STOP_TIMEOUT_S)
    except KeyboardInterrupt as interrupt:
        # There is no way back for a node that drains.
        with uninterrupted():
            _remove(engine, record, records, name, names, silent, timeout_s=1)
        interrupt.add_note(f"stopped {', '.join(names)} without waiting for their tasks any longer")
        raise
    finally:
        records.change(name, wanted=left)
    progress(f"stopped {', '.join(names)}")


def _remove(
    engine: Engine,
    record: Record,
    records: Records,
    name: str,
    names: list[str],
    progress: Progress,
    *,
    timeout_s: int,
) -> None:
    """Stops the containers of these nodes and removes them."""
    folder = records.folder(name)
    stop = ("stop", "--timeout", str(timeout_s))
    for command in (stop, ("rm", "--force")):
        engine.compose(record.project, *command, *names, folder=folder, progress=progress)
