"""Drains Ray nodes: `python -m sunspot.node.drain [--seconds S] [--no-wait] NAME...`

A draining node takes no new tasks; it leaves the cluster by itself when its running ones have
ended. Ray kills nothing at the deadline, so the caller must stop the node then.
Reads RAY_ADDRESS (HOST:PORT of the GCS) and the token's variables from the environment.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from typing import Any

from sunspot.node import gcs

POLL_INTERVAL_S = 0.1
MESSAGE = "removed by sunspot"


def drain(client: Any, node_ids: set[str], seconds: float, message: str) -> set[str]:
    """Drains nodes and waits until they have left.

    Args:
        client: a client of the GCS, see `gcs.connect`.
        node_ids: Ray's ids of the nodes, in hex.
        seconds: how long to wait at most.
        message: the reason, for people.

    Returns:
        The ids of the nodes that are still members.
    """
    deadline = time.time() + seconds
    request(client, node_ids, deadline, message)
    while remaining := node_ids & set(gcs.alive_nodes(client).values()):
        if time.time() > deadline:
            break
        time.sleep(POLL_INTERVAL_S)
    return remaining


def request(client: Any, node_ids: set[str], deadline: float, message: str) -> None:
    """Requests that nodes drain until a deadline, in seconds since the epoch."""
    for node_id in node_ids:
        gcs.drain_node(client, node_id, message, int(deadline * 1000))


def main(arguments: list[str]) -> int:
    """Drains the named nodes; returns 1 if any is still a member that it waited for, else 0."""
    parser = argparse.ArgumentParser(prog="sunspot.node.drain", description=__doc__)
    parser.add_argument("--seconds", type=float, default=30.0, help="how long tasks may go on")
    parser.add_argument("--no-wait", action="store_true", help="end when the drain is requested")
    parser.add_argument("names", nargs="+", help="names of the nodes (`ray start --node-name`)")
    options = parser.parse_args(arguments)
    client = gcs.connect(os.environ["RAY_ADDRESS"])
    alive = gcs.alive_nodes(client)
    ids = {alive[name] for name in options.names if name in alive}
    if options.no_wait:
        request(client, ids, time.time() + options.seconds, MESSAGE)
        return 0
    return 1 if drain(client, ids, options.seconds, MESSAGE) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
