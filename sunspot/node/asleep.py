"""The autoscaler's config of a cluster whose workers are gone because nothing uses them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

IDLE_MINUTES = 0.1
"""How long a worker then stays idle before it is terminated."""


def asleep(config: Mapping[str, Any]) -> dict[str, Any]:
    """The config without minimums: workers that do nothing go, and demand brings some back."""
    types = {
        name: {**kind, "min_workers": 0} for name, kind in config["available_node_types"].items()
    }
    return {**config, "available_node_types": types, "idle_timeout_minutes": IDLE_MINUTES}


def closed(config: Mapping[str, Any]) -> dict[str, Any]:
    """The config without any workers: those that there are go, and no demand brings one back."""
    sleeping = asleep(config)
    types = {
        name: {**kind, "max_workers": 0} for name, kind in sleeping["available_node_types"].items()
    }
    provider = dict(config["provider"])
    if "maximums" in provider:
        provider["maximums"] = dict.fromkeys(provider["maximums"], 0)
    return {**sleeping, "available_node_types": types, "max_workers": 0, "provider": provider}
