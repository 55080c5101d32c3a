"""Drains Ray nodes: `python -m sunspot.node.drain [--seconds S] NAME...`

A draining node takes no new tasks; it leaves the cluster by itself when its running ones have
ended. Ray kills nothing at the deadline: whoever drains stops the node then.
Reads RAY_ADDRESS (HOST:PORT of the GCS) and the token's variables from the environment.
"""

from __future__ import annotations

import argparse
import os
import sys
import time

from ray._raylet import GcsClient
from ray.core.generated import autoscaler_pb2
from ray.core.generated.gcs_pb2 import GcsNodeInfo

POLL_INTERVAL_S = 0.1
RPC_TIMEOUT_S = 10.0


def drain(client: GcsClient, node_ids: set[str], seconds: float, message: str) -> set[str]:
    """Drains nodes and waits until they have left, at most `seconds`; returns those still there.

    `node_ids` are Ray's, in hex: a binary id is accepted and does nothing (Ray 2.60).
    The reason is preemption, the one that Ray never refuses.
    """
    deadline = time.time() + seconds
    for node_id in node_ids:
        client.drain_node(
            node_id,
            autoscaler_pb2.DRAIN_NODE_REASON_PREEMPTION,
            message,
            int(deadline * 1000),
        )
    remaining = node_ids & set(_alive(client).values())
    while remaining and time.time() < deadline:
        time.sleep(POLL_INTERVAL_S)
        remaining = node_ids & set(_alive(client).values())
    return remaining


def _alive(client: GcsClient) -> dict[str, str]:
    """Node name -> node id in hex, of the living nodes."""
    nodes = client.get_all_node_info(timeout=RPC_TIMEOUT_S).values()
    alive = [node for node in nodes if node.state == GcsNodeInfo.GcsNodeState.ALIVE]
    return {node.node_name: node.node_id.hex() for node in alive}


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="sunspot.node.drain", description=__doc__)
    parser.add_argument("--seconds", type=float, default=30.0, help="how long tasks may run on")
    parser.add_argument("names", nargs="+", help="names of the nodes, as `ray start --node-name`")
    options = parser.parse_args(arguments)
    client = GcsClient(address=os.environ["RAY_ADDRESS"])
    alive = _alive(client)
    ids = {alive[name] for name in options.names if name in alive}
    remaining = drain(client, ids, options.seconds, "let go by sunspot")
    return 1 if remaining else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
