"""The few calls that we make to a cluster's GCS, and to a node's raylet.

Ray reads RAY_AUTH_MODE and RAY_AUTH_TOKEN_PATH from the environment when a client is created.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")

# A GCS that has just started on a busy machine takes longer than ten seconds to answer.
RPC_TIMEOUT_S = 30.0
AGAIN_S = 0.5


def connect(address: str) -> Any:
    """A client of the GCS at HOST:PORT (Ray's own GcsClient, which it ships without types)."""
    from ray._raylet import GcsClient  # pyright: ignore[reportAttributeAccessIssue]

    return GcsClient(address=address)


def alive_nodes(client: Any, timeout_s: float = RPC_TIMEOUT_S) -> dict[str, str]:
    """Node name -> node id in hex, of the nodes that are members now."""
    return {node.node_name: node.node_id.hex() for node in _alive(client, timeout_s)}


def raylets(client: Any, timeout_s: float = RPC_TIMEOUT_S) -> dict[str, str]:
    """Node name -> HOST:PORT of its raylet, of the nodes that are members now."""
    return {
        node.node_name: f"{node.node_manager_address}:{node.node_manager_port}"
        for node in _alive(client, timeout_s)
    }


def alive_labels(client: Any, timeout_s: float = RPC_TIMEOUT_S) -> list[dict[str, str]]:
    """The labels of each node that is a member now."""
    return [dict(node.labels) for node in _alive(client, timeout_s)]


def labels_by_name(client: Any, timeout_s: float = RPC_TIMEOUT_S) -> dict[str, dict[str, str]]:
    """Node name -> its labels, of the nodes that are members now."""
    return {node.node_name: dict(node.labels) for node in _alive(client, timeout_s)}


def death(client: Any, name: str, timeout_s: float = RPC_TIMEOUT_S) -> str | None:
    """How a node of that name ended: a reason of Ray's NodeDeathInfo, by its name.

    None while it is a member, and where the GCS does not know it (it keeps the last 1,000 that
    ended, maximum_gcs_dead_node_cached_count in Ray 2.60).
    """
    from ray.core.generated import common_pb2, gcs_pb2

    dead = gcs_pb2.GcsNodeInfo.DEAD  # pyright: ignore[reportAttributeAccessIssue]
    nodes = client.get_all_node_info(timeout=timeout_s).values()
    named = [node for node in nodes if node.node_name == name]
    if not named or any(node.state != dead for node in named):
        return None
    reason = max(named, key=lambda node: node.end_time_ms).death_info.reason
    return common_pb2.NodeDeathInfo.Reason.Name(reason)  # pyright: ignore[reportAttributeAccessIssue]


def drain_node(
    client: Any, node_id: str, message: str, deadline_ms: int, timeout_s: float = RPC_TIMEOUT_S
) -> None:
    """Requests a drain with the reason that Ray never refuses, preemption.

    Args:
        client: a client of the GCS, see `connect`.
        node_id: the node's id in hex; a binary id is accepted but does nothing (Ray 2.60).
        message: the reason, for people.
        deadline_ms: milliseconds since the epoch; Ray reports the deadline and does not enforce it.
        timeout_s: seconds that the call may take.
    """
    from ray.core.generated import autoscaler_pb2

    reason = autoscaler_pb2.DRAIN_NODE_REASON_PREEMPTION  # pyright: ignore[reportAttributeAccessIssue]
    client.drain_node(node_id, reason, message, deadline_ms, timeout=timeout_s)


def stop_raylet(address: str, timeout_s: float = RPC_TIMEOUT_S) -> None:
    """Asks the raylet at HOST:PORT to shut down: it kills its workers and leaves the GCS.

    Ray's own tests stop nodes with this call (ray/_private/test_utils.py, 2.60). The node is gone
    from the GCS within 0.1 s; one that is killed stays in it for about 20 s. By its source,
    `ray start --block` takes the raylet's exit code 0 as intended and keeps running
    (ray/scripts/scripts.py, 2.60).
    """
    from ray._private.grpc_utils import init_grpc_channel
    from ray.core.generated import node_manager_pb2, node_manager_pb2_grpc

    request = node_manager_pb2.ShutdownRayletRequest(graceful=True)  # pyright: ignore[reportAttributeAccessIssue]
    with contextlib.closing(init_grpc_channel(address)) as channel:
        stub = node_manager_pb2_grpc.NodeManagerServiceStub(channel)
        stub.ShutdownRaylet(request, timeout=timeout_s)


def patiently(call: Callable[[], T], deadline: float) -> T:
    """The answer of a call above, which is made again while the GCS is too busy to answer in time.

    Args:
        call: the call.
        deadline: until when it is made again, on the monotonic clock.

    Raises:
        ray.exceptions.RpcError: the GCS did not answer by then.
    """
    from ray.exceptions import RpcError

    while True:
        try:
            return call()
        except RpcError:
            if time.monotonic() > deadline:
                raise
        time.sleep(AGAIN_S)


def _alive(client: Any, timeout_s: float) -> list[Any]:
    from ray.core.generated import gcs_pb2

    alive = gcs_pb2.GcsNodeInfo.ALIVE  # pyright: ignore[reportAttributeAccessIssue]
    nodes = client.get_all_node_info(timeout=timeout_s).values()
    return [node for node in nodes if node.state == alive]
