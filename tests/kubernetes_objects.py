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
