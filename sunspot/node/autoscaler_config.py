"""The config file of Ray's autoscaler."""

from __future__ import annotations

from typing import Any

IDLE_TIMEOUT_MINUTES = 5
"""How long a worker above its group's minimum stays idle before it is given back."""

# Where several node types would do, Ray takes the one of the highest `priority` (2.60).
SPOT_PRIORITY = 1
ON_DEMAND_PRIORITY = 0
COOLED_PRIORITY = -1  # a spot type that was refused lately


def config(
    *, name: str, provider: dict[str, Any], node_types: dict[str, dict[str, Any]], head_type: str
) -> dict[str, Any]:
    """The file for `ray start --autoscaling-config`.

    Ray demands the empty lists (KeyError without them) and re-reads the file at every tick.
    """
    return {
        "cluster_name": name,
        "provider": {
            "type": "external",
            "module": "sunspot.node.autoscaler.MachinesProvider",
            "disable_node_updaters": True,
            "disable_launch_config_check": True,
            **provider,
        },
        "max_workers": sum(node_type["max_workers"] for node_type in node_types.values()),
        "head_node_type": head_type,
        "available_node_types": node_types,
        "idle_timeout_minutes": IDLE_TIMEOUT_MINUTES,
        "upscaling_speed": 1.0,  # Ray's default of 0 adds one node at a time
        "setup_commands": [],
        "head_setup_commands": [],
        "worker_setup_commands": [],
        "cluster_synced_files": [],
        "file_mounts": {},
        "initialization_commands": [],
    }
