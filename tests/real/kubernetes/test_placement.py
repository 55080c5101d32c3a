"""Where the pods of a manifest are put, by the real scheduler, and why some are not.

Nodes that a test makes have nothing behind them: the scheduler decides by what is written there.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from kubernetes_stacks import group, stack
from machines.kubernetes.cluster import Cluster
from ray_clusters import (
    SMALL_AUTOSCALER,
    SMALL_HEAD,
    SMALL_WORKER,
    RayCluster,
    wait_for_node,
    wait_for_reason,
)

GPUS = "nvidia.com/gpu"
TEAM = {"key": "team", "value": "ml", "effect": "NoSchedule"}
SKU = {"key": "sku", "value": "gpu", "effect": "NoSchedule"}
SPOT = {"key": "kubernetes.azure.com/scalesetpriority", "value": "spot", "effect": "NoSchedule"}
CPU_NODES = {"node_selector": {"pool": "cpu"}, "tolerations": [TEAM]}
GPU_NODES = {"node_selector": {"pool": "gpu"}, "tolerations": [SKU]}


@pytest.fixture(scope="module", autouse=True)
def nodes(kubernetes: Cluster) -> Iterator[None]:
    """A node for CPU pods, one for GPU pods and one of AKS's spot nodes, each with its taint."""
    _make_node(kubernetes, "test-cpu", {"pool": "cpu"}, TEAM)
    _make_node(kubernetes, "test-gpu", {"pool": "gpu"}, SKU, {GPUS: "2"})
    _make_node(kubernetes, "test-spot", {SPOT["key"]: "spot"}, SPOT)
    yield
    # The pods there go with them.
    kubernetes.kubectl("delete", "node", "test-cpu", "test-gpu", "test-spot")


def _make_node(
    kubernetes: Cluster,
    name: str,
    labels: dict[str, str],
    taint: dict[str, str],
    extended: dict[str, str] | None = None,
) -> None:
    """Makes a node that is ready for pods, by what is written on it."""
    kubectl = kubernetes.kubectl
    node = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels},
        "spec": {"taints": [taint]},
    }
    kubectl.apply(node)
    has = {"cpu": "16", "memory": "64Gi", "pods": "20", **(extended or {})}
    ready = {"type": "Ready", "status": "True", "reason": "Test", "message": "nothing runs here"}
    status = {"status": {"capacity": has, "allocatable": has, "conditions": [ready]}}
    kubectl.patch("node", name, status, "--subresource=status")
    # What the API server taints every new node with, until its status says that it is ready.
    kubectl.run("taint", "node", name, "node.kubernetes.io/not-ready-")


def _applied(kubernetes: Cluster, namespace: str, *groups: dict, **settings: Any) -> RayCluster:
    described = stack(
        *groups,
        head=SMALL_HEAD,
        autoscaler=SMALL_AUTOSCALER,
        namespace=namespace,
        **settings,
    )
    made = RayCluster.of(described, kubernetes.kubectl)
    made.make_token()
    made.apply()
    return made


def _workers(name: str, *, gpus: int = 0, market: str = "on-demand") -> dict[str, Any]:
    node = SMALL_WORKER | ({"gpu_count": gpus} if gpus else {})
    return {**group(name, market=market), "worker_nodes": node}


def test_pods_go_where_their_selectors_and_tolerations_let_them(
    kubernetes: Cluster, namespace: str
):
    cluster = _applied(
        kubernetes,
        namespace,
        _workers("plain"),
        _workers("with-gpus", gpus=2),
        _workers("cheap", market="spot"),
        cpu_nodes={},
        gpu_nodes=GPU_NODES,
        groups={"head": CPU_NODES},
    )
    assert wait_for_node(cluster, "head") == "test-cpu"
    assert wait_for_node(cluster, "with-gpus") == "test-gpu"
    # AKS's label and taint are the default of spot groups.
    assert wait_for_node(cluster, "cheap") == "test-spot"
    assert wait_for_node(cluster, "plain") == "sunspot"


@pytest.mark.parametrize(
    ("settings", "gpus", "reason"),
    [
        pytest.param(
            {"cpu_nodes": {"node_selector": {"pool": "cpu"}}},
            0,
            "untolerated taint {team: ml}",
            id="no-toleration",
        ),
        pytest.param(
            {"cpu_nodes": {**CPU_NODES, "node_selector": {"pool": "nowhere"}}},
            0,
            "didn't match Pod's node affinity/selector",
            id="no-such-node",
        ),
        pytest.param({"gpu_nodes": GPU_NODES}, 3, f"Insufficient {GPUS}", id="too-many-gpus"),
    ],
)
def test_a_pod_that_fits_nowhere_waits_with_the_schedulers_reason(
    kubernetes: Cluster, namespace: str, settings: dict, gpus: int, reason: str
):
    cluster = _applied(kubernetes, namespace, _workers("waiting", gpus=gpus), **settings)
    assert reason in wait_for_reason(cluster, "waiting")
