"""Keeps Ray Train from starting a group of workers on a node that is not there any more.

A machine that is switched off stays a member of the cluster for some 20 s, until it has missed
its health checks. A group that starts meanwhile is promised a place on it and waits.
"""

# ruff: noqa: ARG002 - Ray says what its callbacks are given

import contextlib
import socket
import time
from typing import Any

import ray
from ray.train import UserCallback

CONNECT_TIMEOUT_S = 2.0
# Ray's health checks: 5 s, then five misses of 3 s that may each take 10 s (ray_config_def.h).
LIMIT_S = 90.0


class WaitForTheTruth(UserCallback):
    """After a failure, waits until each node that Ray counts as alive is there.

    Ray Train calls this in its controller before it starts the next group of workers.
    """

    def after_exception(self, run_context: Any, worker_exceptions: dict[int, Exception]) -> None:
        """Wait; at most LIMIT_S."""
        deadline = time.monotonic() + LIMIT_S
        while silent := [node for node in ray.nodes() if node["Alive"] and not _answers(node)]:
            if time.monotonic() > deadline:
                break
            print(f"waiting for Ray to notice that {len(silent)} node(s) are gone", flush=True)
            time.sleep(1)


def _answers(node: dict[str, Any]) -> bool:
    """Whether something listens where the node's raylet should."""
    address = node["NodeManagerAddress"], node["NodeManagerPort"]
    with contextlib.suppress(OSError), socket.create_connection(address, CONNECT_TIMEOUT_S):
        return True
    return False
