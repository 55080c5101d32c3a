"""The few questions that we ask a cluster's GCS directly.

Ray reads RAY_AUTH_MODE and RAY_AUTH_TOKEN_PATH from the environment when a client is made.
"""

from __future__ import annotations

from typing import Any

RPC_TIMEOUT_S = 10.0


def connect(address: str) -> Any:
    """A client of the GCS at HOST:PORT (Ray's own GcsClient, which it ships without types)."""
    from ray._raylet import GcsClient  # pyright: ignore[reportAttributeAccessIssue]

    return GcsClient(address=address)


def alive_nodes(client: Any) -> dict[str, str]:
    """Node name -> node id in hex, of the nodes that are members now."""
    from ray.core.generated import gcs_pb2

    alive = gcs_pb2.GcsNodeInfo.ALIVE  # pyright: ignore[reportAttributeAccessIssue]
    nodes = client.get_all_node_info(timeout=RPC_TIMEOUT_S).values()
    return {node.node_name: node.node_id.hex() for node in nodes if node.state == alive}


def drain_node(client: Any, node_id: str, message: str, deadline_ms: int) -> None:
    """Asks for a drain with the reason that Ray never refuses, preemption.

    `node_id` is hex: a binary id is accepted and does nothing (Ray 2.60).
    """
    from ray.core.generated import autoscaler_pb2

    reason = autoscaler_pb2.DRAIN_NODE_REASON_PREEMPTION  # pyright: ignore[reportAttributeAccessIssue]
    client.drain_node(node_id, reason, message, deadline_ms)
