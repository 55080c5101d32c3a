"""Scaling by hand: workers are started, or drained and stopped."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace

from sunspot.errors import UsageError
from sunspot.node.local.folder import ClusterFolder, NodeRecord, ports_locked
from sunspot.ray.handle import ClusterHandle
from sunspot.signals import uninterrupted
from sunspot.stack import Stack
from sunspot.targets import abilities
from sunspot.targets.local import capacity, plan
from sunspot.targets.local.starting import start
from sunspot.targets.protocol import Progress

DRAIN_TIMEOUT_S = 30.0


def check(stack: Stack, group: str, count: int) -> None:
    """Checks that a group can have this number of workers.

    Raises:
        UsageError: there is no such group, or the count is outside 0 to its max_workers.
    """
    groups = {one.name: one for one in stack.cluster.scaling_groups}
    if group not in groups:
        raise abilities.unknown(stack.name, "group", group, groups)
    if not 0 <= count <= groups[group].max_workers:
        raise UsageError(
            f"{group}={count} is outside 0 to {groups[group].max_workers}, its max_workers; "
            f"raise max_workers in Pulumi.{stack.name}.yaml, then take the stack down and bring it "
            "up again"
        )


def scale(
    folder: ClusterFolder, handle: ClusterHandle, group: str, count: int, progress: Progress
) -> None:
    """Gives a group `count` workers. The caller holds the cluster's lock."""
    running = [n for n in _wanted(folder) if n.shape.group == group and _is_up(folder, n)]
    if count > len(running):
        _start(folder, group, count, len(running), progress)
        return
    plan.set_minimum(folder, group, count)
    if count < len(running):
        _stop(folder, handle, running[count:], progress)


def _start(folder: ClusterFolder, group: str, count: int, running: int, progress: Progress) -> None:
    """Starts workers up to `count`. Whatever stops that, the group has what it had before.

    The minimum changes after the records of the new nodes are written, and is put back before the
    nodes are stopped: at every moment in between, the autoscaler would start the missing ones.
    """
    capacity.check_space(folder)
    known = {node.name for node in folder.nodes()}
    minimum = plan.minimum(folder, group)
    try:
        with ports_locked(folder.path.parent):
            shape = folder.cluster().shapes[group]
            nodes = [folder.add_node(shape) for _ in range(count - running)]
        plan.set_minimum(folder, group, count)
        start(folder, nodes, progress)
    except BaseException as error:
        with uninterrupted():
            plan.set_minimum(folder, group, minimum)
            added = [n for n in _wanted(folder) if n.name not in known and n.shape.group == group]
            _stop_at_once(folder, added)
        error.add_note(f"group {group} has the {running} workers that it had before")
        raise


def _stop(
    folder: ClusterFolder, handle: ClusterHandle, nodes: list[NodeRecord], progress: Progress
) -> None:
    """Drains nodes, so that running tasks can end, and stops them."""
    names = [node.name for node in nodes]
    drain = [sys.executable, "-P", "-m", "sunspot.node.drain", f"--seconds={DRAIN_TIMEOUT_S}"]
    try:
        for node in nodes:
            folder.write_node(replace(node, goal="down"))
        progress(f"draining {', '.join(names)} (at most {DRAIN_TIMEOUT_S:.0f} s)")
        subprocess.run([*drain, *names], env=os.environ | handle.environment(), check=False)
    except KeyboardInterrupt as interrupt:
        # There is no way back for a node that drains.
        interrupt.add_note(f"stopped {', '.join(names)} without waiting for their tasks any longer")
        raise
    finally:
        with uninterrupted():
            _stop_at_once(folder, nodes)
    progress(f"stopped {', '.join(names)}")


def _stop_at_once(folder: ClusterFolder, nodes: list[NodeRecord]) -> None:
    for node in nodes:
        folder.write_node(replace(node, goal="down"))
    for node in nodes:
        folder.stop(node.name)


def _wanted(folder: ClusterFolder) -> list[NodeRecord]:
    return [node for node in folder.nodes() if node.goal == "up"]


def _is_up(folder: ClusterFolder, node: NodeRecord) -> bool:
    return folder.process(node.name) is None or folder.is_running(node.name)
