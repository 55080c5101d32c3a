"""The autoscaler's config of a cluster whose workers are gone because nothing uses them."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from sunspot.node.files import write_private

How = Literal["asleep", "closed"]

LEASE_S = 180.0
"""How long a lease lasts that nobody renews: its holder has ended, or the head has restarted."""

CLOSED = "closed"
"""What a config's provider part has where no worker may stay, whatever runs on it."""

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
    provider = {**config["provider"], CLOSED: True}
    if "maximums" in provider:
        provider["maximums"] = dict.fromkeys(provider["maximums"], 0)
    return {**sleeping, "available_node_types": types, "max_workers": 0, "provider": provider}


def applied(config: Mapping[str, Any], how: How | None) -> Mapping[str, Any]:
    """The config as a lease wants it; as it is without one."""
    if how is None:
        return config
    return asleep(config) if how == "asleep" else closed(config)


@dataclass(frozen=True)
class Lease:
    """A file that says how the autoscaler's config is to be changed, for a while."""

    path: Path

    def put(self, how: How) -> None:
        """Wants it so from now on for LEASE_S. Raises OSError."""
        write_private(self.path, json.dumps({"how": how, "until": time.time() + LEASE_S}))

    def drop(self) -> None:
        """Wants nothing any longer. Raises OSError."""
        self.path.unlink(missing_ok=True)

    def read(self) -> How | None:
        """How it is wanted now."""
        try:
            found = json.loads(self.path.read_text(encoding="utf-8"))
            how, until = found["how"], float(found["until"])
        except (OSError, ValueError, LookupError, TypeError):
            return None
        # A clock that was set back does not make a lease last for ever.
        lasts = 0 < until - time.time() <= LEASE_S
        return how if lasts and how in {"asleep", "closed"} else None
