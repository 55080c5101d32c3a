"""The config file of Ray's autoscaler."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

IDLE_TIMEOUT_MINUTES = 5
"""How long a worker above its group's minimum stays idle before it is terminated."""

# If several node types fit, Ray chooses the one with the highest `priority` (2.60).
SPOT_PRIORITY = 1
ON_DEMAND_PRIORITY = 0
COOLED_PRIORITY = -1  # a spot type that was refused lately
PAUSED_PRIORITY = -2  # a type whose machines do not join


def config(
    *,
    name: str,
    machines: str,
    settings: Mapping[str, Any],
    config_file: str,
    node_types: Mapping[str, Mapping[str, Any]],
    head_type: str,
    twins: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """The file for `ray start --autoscaling-config`.

    Ray requires the empty lists (KeyError without them) and re-reads the file at every tick.

    Args:
        name: the cluster's name.
        machines: the "package.module.function" that makes the `Machines` of the `provider` part.
        settings: what that function needs.
        config_file: the file's path on the head.
        node_types: all node types, by name.
        head_type: the head's node type.
        twins: the on-demand node types by their spot types.
    """
    return {
        "cluster_name": name,
        "provider": {
            "type": "external",
            "module": "sunspot.node.autoscaler.MachinesProvider",
            "disable_node_updaters": True,
            "disable_launch_config_check": True,
            "machines": machines,
            "config_file": config_file,
            "twins": dict(twins or {}),
            **settings,
        },
        "max_workers": sum(node_type["max_workers"] for node_type in node_types.values()),
        "head_node_type": head_type,
        "available_node_types": dict(node_types),
        "idle_timeout_minutes": IDLE_TIMEOUT_MINUTES,
        "upscaling_speed": 1.0,  # Ray's default of 0 adds one node at a time
        "setup_commands": [],
        "head_setup_commands": [],
        "worker_setup_commands": [],
        "cluster_synced_files": [],
        "file_mounts": {},
        "initialization_commands": [],
    }


def node_type(
    *,
    resources: Mapping[str, float],
    labels: Mapping[str, str],
    minimum: int = 0,
    maximum: int = 0,
    priority: int | None = None,
) -> dict[str, Any]:
    """One of the file's node types: what its nodes have, and how many there may be.

    The head's has neither minimum nor maximum: the head always exists.
    """
    made: dict[str, Any] = {
        "resources": dict(resources),
        "labels": dict(labels),
        "node_config": {},
        "min_workers": minimum,
        "max_workers": maximum,
    }
    return made if priority is None else {**made, "priority": priority}
