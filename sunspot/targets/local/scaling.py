"""Scaling by hand: workers are started, or drained and stopped."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from dataclasses import replace

from sunspot.errors import SunspotError, UsageError
from sunspot.node.events import Event
from sunspot.node.local.folder import ClusterFolder, NodeRecord, ports_locked
from sunspot.ray.handle import ClusterHandle
from sunspot.signals import uninterrupted
from sunspot.stack import Stack
from sunspot.targets import abilities, members
from sunspot.targets.local import capacity, plan
from sunspot.targets.local.starting import start
from sunspot.targets.protocol import UP_TIMEOUT_S, Progress
from sunspot.targets.scaling import Size

DRAIN_TIMEOUT_S = 30.0
POLL_S = 0.2


def check(stack: Stack, name: str, size: Size) -> None:
    """Checks that a group can have this size.

    Raises:
        UsageError: there is no such group, or the size is outside 0 to its max_workers.
    """
    most = abilities.group(stack, name).max_workers
    if not 0 <= size.minimum <= size.highest <= most:
        raise UsageError(
            f"{name}={size} is outside 0 to {most}, its max_workers; raise max_workers in "
            f"Pulumi.{stack.name}.yaml, then take the stack down and bring it up again"
        )


def scale(
    folder: ClusterFolder, handle: ClusterHandle, group: str, size: Size, progress: Progress
) -> None:
    """Gives a group a size; returns when its workers are members. The caller holds the lock."""
    running = _running(folder, group)
    count = size.nearest(len(running))
    said = f"to {size} by hand, from {len(running)}"
    folder.events.add(Event(kind="scaled", group=group, reason=said))
    if count > len(running):
        _start(folder, group, size, len(running), progress)
    elif count < len(running):
        _stop(folder, handle, size, running[count:], progress)
    else:
        plan.set_size(folder, group, size)
    _wait_until_members(folder, handle, group, progress)


def _start(folder: ClusterFolder, group: str, size: Size, running: int, progress: Progress) -> None:
    """Starts workers up to the minimum. Whatever stops that, the group has what it had before.

    The size changes after the records of the new nodes are written, and is put back before the
    nodes are stopped: at every moment in between, the autoscaler would start the missing ones.
    """
    capacity.check_space(folder)
    known = {node.name for node in folder.nodes()}
    before = plan.size(folder, group)
    try:
        with ports_locked(folder.path.parent):
            shape = folder.cluster().shapes[group]
            missing = range(size.minimum - running)
            nodes = [folder.add_node(shape, "for `sunspot scale`") for _ in missing]
        plan.set_size(folder, group, size)
        start(folder, nodes, progress)
    except BaseException as error:
        with uninterrupted():
            plan.set_size(folder, group, before)
            added = [n for n in _wanted(folder) if n.name not in known and n.shape.group == group]
            stop_at_once(folder, added)
        error.add_note(f"group {group} has the {running} workers that it had before")
        raise


def _wait_until_members(
    folder: ClusterFolder, handle: ClusterHandle, group: str, progress: Progress
) -> None:
    """Waits for the workers that the autoscaler is starting meanwhile.

    Raises:
        SunspotError: one did not join in time.
    """
    from sunspot.ray.jobs import JobClient

    client, deadline = JobClient(handle), time.monotonic() + UP_TIMEOUT_S
    said = False
    while True:
        joined = members.addresses(client.state("nodes"))
        missing = [node.name for node in _running(folder, group) if node.name not in joined]
        if not missing:
            return
        if time.monotonic() > deadline:
            raise SunspotError(
                f"{', '.join(missing)} did not join within {UP_TIMEOUT_S:g} s; see: sunspot logs "
                f"--stack {handle.name} --node {missing[0]}"
            )
        if not said:
            progress(f"waiting for {', '.join(missing)}")
            said = True
        time.sleep(POLL_S)


def _stop(
    folder: ClusterFolder,
    handle: ClusterHandle,
    size: Size,
    nodes: list[NodeRecord],
    progress: Progress,
) -> None:
    """Drains nodes, so that running tasks can end, and stops them.

    They are no longer listed when the group gets its size: Ray's autoscaler would stop those above
    a maximum at once, whatever runs on them.
    """
    names = [node.name for node in nodes]
    drain = [sys.executable, "-P", "-m", "sunspot.node.drain", f"--seconds={DRAIN_TIMEOUT_S}"]
    try:
        for node in nodes:
            folder.write_node(replace(node, goal="down"))
        plan.set_size(folder, nodes[0].shape.group, size)
        progress(f"draining {', '.join(names)} (at most {DRAIN_TIMEOUT_S:.0f} s)")
        subprocess.run([*drain, *names], env=os.environ | handle.environment(), check=False)
    except KeyboardInterrupt as interrupt:
        # There is no way back for a node that drains.
        interrupt.add_note(f"stopped {', '.join(names)} without waiting for their tasks any longer")
        raise
    finally:
        with uninterrupted():
            stop_at_once(folder, nodes)
            for node in nodes:
                group, reason = node.shape.group, "for `sunspot scale`"
                folder.events.add(Event(kind="drained", group=group, node=node.name, reason=reason))
    progress(f"stopped {', '.join(names)}")


def stop_at_once(folder: ClusterFolder, nodes: list[NodeRecord]) -> None:
    """Ends nodes, which are then not lost."""
    for node in nodes:
        folder.write_node(replace(node, goal="down"))
    for node in nodes:
        folder.stop(node.name)


def _running(folder: ClusterFolder, group: str) -> list[NodeRecord]:
    return [n for n in _wanted(folder) if n.shape.group == group and _is_up(folder, n)]


def _wanted(folder: ClusterFolder) -> list[NodeRecord]:
    return [node for node in folder.nodes() if node.goal == "up"]


def _is_up(folder: ClusterFolder, node: NodeRecord) -> bool:
    return folder.process(node.name) is None or folder.is_running(node.name)
