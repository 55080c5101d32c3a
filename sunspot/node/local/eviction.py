"""A rehearsal of a spot eviction: `python -m sunspot.node.local.eviction FOLDER NODE --notice S`

The node gets the notice that Azure would give, from the watcher that runs on every VM: it drains,
its raylet is stopped before the deadline, and then its processes end, as its VM would. What becomes
of it is in the cluster's events. Reads the token's variables from the environment.
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
import time
from dataclasses import replace
from pathlib import Path

from sunspot.node.azure.eviction import Timing, Watcher
from sunspot.node.azure.imds import Event as Notice
from sunspot.node.azure.imds import Imds
from sunspot.node.events import Event
from sunspot.node.leaving import Marks, Node, Worker
from sunspot.node.local.folder import ClusterFolder, NodeRecord
from sunspot.node.metrics import Entry

POLL_S = 0.2
# A short notice must leave some time to drain.
LARGEST_MARGIN_SHARE = 0.25


class OneNotice(Imds):
    """Scheduled events, as far as the watcher needs them: one Preempt, of one node."""

    def __init__(self, node: str, not_before: float) -> None:
        super().__init__()
        self._notice = Notice(
            id=f"rehearsal-{node}",
            type="Preempt",
            status="Scheduled",
            resources=(node,),
            not_before=not_before,
            source="User",
        )
        self.acknowledged = False

    def events(self, timeout_s: float = 0) -> tuple[Notice, ...]:  # noqa: ARG002 - it is here
        return (self._notice,)

    def acknowledge(self, event_id: str) -> None:  # noqa: ARG002 - there is only one
        self.acknowledged = True


def evict(folder: ClusterFolder, node: NodeRecord, ray: Node, notice_s: float) -> None:
    """Evicts a node; returns when its processes have ended.

    Args:
        folder: the cluster's folder.
        node: the node's record.
        ray: its Ray node, as the cluster knows it.
        notice_s: seconds from now until its processes end, whatever runs in them.
    """
    ends = time.time() + notice_s
    notice = OneNotice(node.name, ends)
    group = node.shape.group
    said = f"rehearsed, with a notice of {notice_s:g} s"
    folder.events.add(Event(kind="evicted", group=group, node=node.name, reason=said))

    def report(entry: Entry) -> None:
        if entry.drain_s is not None:  # otherwise it only says that the notice came
            how = "nothing ran on it any more" if entry.outcome == "idle" else "its time was up"
            reason = f"left {entry.drain_s:.0f} s after the notice: {how}"
            folder.events.add(Event(kind="drained", group=group, node=node.name, reason=reason))

    watcher = Watcher(
        name=node.name,
        group=group,
        imds=notice,
        node=ray,
        marks=Marks(None),
        report=report,
        timing=Timing(
            poll_s=POLL_S, margin_s=min(Timing.margin_s, notice_s * LARGEST_MARGIN_SHARE)
        ),
    )
    while not notice.acknowledged and time.time() < ends:
        time.sleep(min(watcher.turn(), max(0.0, ends - time.time())))
    # Not before: until a machine is gone it is listed.
    folder.write_node(replace(node, goal="down"))
    folder.stop(node.name, grace_s=0)


def main(arguments: list[str]) -> int:
    """Evicts the node; 1 if the cluster has none of that name."""
    parser = argparse.ArgumentParser(prog="sunspot.node.local.eviction", description=__doc__)
    parser.add_argument("folder", type=Path, help="the cluster's folder")
    parser.add_argument("node", help="the node's name")
    parser.add_argument("--notice", type=float, required=True, metavar="S", help="seconds")
    given = parser.parse_args(arguments)
    logging.basicConfig(format="%(levelname)s %(message)s", level=logging.WARNING)
    # As for a VM's watcher: Ray reads it when it loads, and loading takes seconds.
    os.environ.setdefault("RAY_py_gcs_connect_timeout_s", "3")
    import ray._raylet  # noqa: F401

    folder = ClusterFolder(given.folder)
    node = next((one for one in folder.nodes() if one.name == given.node), None)
    if node is None:
        return 1
    evict(folder, node, Worker(os.environ["RAY_ADDRESS"], node.name), given.notice)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
