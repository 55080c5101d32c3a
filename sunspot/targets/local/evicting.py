"""The rehearsal of an eviction on this machine: a process of its own, as the watcher of a VM is."""

from __future__ import annotations

import os
import subprocess
import sys

from sunspot.errors import SunspotError, UsageError
from sunspot.node.events import ENDS, Event
from sunspot.node.local.folder import CLUSTER_VARIABLE, ClusterFolder
from sunspot.ray.handle import ClusterHandle
from sunspot.signals import uninterrupted
from sunspot.targets.local import scaling
from sunspot.targets.protocol import NodeStatus, Progress


def evict(
    folder: ClusterFolder,
    handle: ClusterHandle,
    node: NodeStatus,
    notice_s: float,
    progress: Progress,
) -> str:
    """Evicts a worker that is up; returns when its processes have ended, with what happened.

    An interrupt ends them at once: an eviction cannot be called off.

    Raises:
        UsageError: it is being evicted already.
        SunspotError: the watcher failed, for instance since the cluster was taken down.
    """
    if ENDS & folder.events.kinds(node.name):
        raise UsageError(f"node {node.name!r} of {handle.name!r} is leaving already")
    command = [sys.executable, "-P", "-m", "sunspot.node.local.eviction"]
    command += [str(folder.path), node.name, f"--notice={notice_s}"]
    # Marked as the cluster's, so that `down` ends it as well.
    own = os.environ | handle.environment() | {CLUSTER_VARIABLE: str(folder.path)}
    progress(f"{node.name} has a notice of {notice_s:g} s: it takes no new work")
    try:
        # Its own session: if this process is killed, the node ends with its notice all the same.
        ended = subprocess.run(command, env=own, check=False, start_new_session=True)
    except KeyboardInterrupt as interrupt:
        with uninterrupted():
            scaling.stop_at_once(folder, [one for one in folder.nodes() if one.name == node.name])
            if not ENDS & folder.events.kinds(node.name):  # the notice had not come yet
                reason = "rehearsed, and interrupted"
                event = Event(kind="evicted", group=node.group, node=node.name, reason=reason)
                folder.events.add(event)
        interrupt.add_note(f"{node.name} was stopped at once: an eviction cannot be called off")
        raise
    if ended.returncode:
        raise SunspotError(
            f"the eviction of {node.name!r} was ended before its time, for instance since the "
            f"cluster was taken down; its state: sunspot status {handle.name}"
        )
    return _told(folder, node)


def _told(folder: ClusterFolder, node: NodeStatus) -> str:
    left = [one for one in folder.events.read() if one.node == node.name and one.kind == "drained"]
    how = left[-1].reason if left else "ended with its notice"
    return f"{node.name} {how}"
