"""A driver with a placement group on a node that goes; test_vanished.py runs two of them.

It prints "ready" when its group is placed. One with a peer's name then waits until the groups of
both have lost the node, lets no_endless_start look, and prints what became of each group. One
without holds its group until its stdin ends.
"""

from __future__ import annotations

import json
import logging
import sys
import time

import _vanished  # pyright: ignore[reportMissingImports]
import ray
from ray.util import placement_group, placement_group_table

SOUGHT_S, LOOK_EVERY_S = 2.0, 0.2
DEADLINE_S = 240.0
POLL_S = 0.1


def states() -> dict[str, str]:
    return {group["name"]: group["state"] for group in placement_group_table().values()}


def wait_until(wanted: dict[str, str]) -> bool:
    """Whether the groups came into these states before the deadline.

    Not by tests/waiting.py: only workloads/ is on this program's path, and that the deadline
    passed is an answer here, not a failure.
    """
    deadline = time.monotonic() + DEADLINE_S
    while not wanted.items() <= states().items():
        if time.monotonic() > deadline:
            return False
        time.sleep(POLL_S)
    return True


def main(name: str, node_name: str, peer: str | None = None) -> None:
    ray.init(logging_level=logging.ERROR, log_to_driver=False)
    [node] = [n["NodeID"] for n in ray.nodes() if n["Alive"] and n["NodeName"] == node_name]
    # No other node has this label, so no other can ever take the group over.
    placed = placement_group(
        [{"CPU": 0.5}], name=name, bundle_label_selector=[{"ray.io/node-id": node}]
    )
    placement_group([{"CPU": 1000}], name=f"{name}-waits")
    ray.get(placed.ready())
    print("ready", flush=True)
    if peer is None:
        sys.stdin.read()
        return
    wait_until({name: "RESCHEDULING", peer: "RESCHEDULING", f"{name}-waits": "PENDING"})
    before = states()
    with _vanished.no_endless_start(SOUGHT_S, LOOK_EVERY_S):
        # All groups were there from its first look on, so it treats all alike in the same look;
        # the end of the block waits for the end of that.
        wait_until({name: "REMOVED"})
    print(json.dumps({"before": before, "after": states()}), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
