"""Objects of a Kubernetes as its API has them: pods as KubeRay labels them, and nodes."""

from __future__ import annotations

from typing import Any


def pod(
    cluster: str,
    group: str,
    name: str,
    *,
    phase: str = "Running",
    waiting: dict[str, str] | None = None,
    unschedulable: str = "",
    address: str = "10.0.0.1",
) -> dict[str, Any]:
    """A pod of a RayCluster, as KubeRay labels it; one that runs is ready."""
    is_head = group == "head"
    state = {"waiting": waiting} if waiting else {"running": {}}
    ready = waiting is None and phase == "Running"
    status: dict[str, Any] = {"phase": "Pending" if waiting or unschedulable else phase}
    if unschedulable:
        status["conditions"] = [
            {
                "type": "PodScheduled",
                "status": "False",
                "reason": "Unschedulable",
                "message": unschedulable,
            }
        ]
    else:
        status["containerStatuses"] = [{"name": "ray", "state": state, "ready": ready}]
        status["podIPs"] = [{"ip": address}]
    return {
        "metadata": {
            "name": name,
            "labels": {
                "ray.io/cluster": cluster,
                "ray.io/node-type": "head" if is_head else "worker",
                "ray.io/group": "headgroup" if is_head else group,
            },
        },
        "spec": {
            "containers": [{"name": "ray", "image": "ray"}],
            "terminationGracePeriodSeconds": 1,
        },
        "status": status,
    }


def member(one: dict[str, Any]) -> dict[str, Any]:
    """What Ray says of a pod that has joined."""
    labels = one["metadata"]["labels"]
    is_head = labels["ray.io/node-type"] == "head"
    name = "head" if is_head else one["metadata"]["name"]
    return {
        "node_id": name,
        "node_name": name,
        "node_ip": one["status"]["podIPs"][0]["ip"],
        "is_head_node": is_head,
        "state": "ALIVE",
        "state_message": None,
        "labels": {"ray.io/node-group": labels["ray.io/group"], "ray.io/market-type": "on-demand"},
        "resources_total": {"CPU": 1.0, "memory": 2.0 * 2**30},
    }


def node(
    name: str = "n1",
    *,
    cpu: str = "8",
    memory: str = "32Gi",
    labels=None,
    taints=(),
    **devices: str,
) -> dict[str, Any]:
    """A node with this much to give."""
    return {
        "metadata": {"name": name, "labels": labels or {}},
        "spec": {"taints": list(taints)},
        "status": {"allocatable": {"cpu": cpu, "memory": memory, **devices}},
    }
