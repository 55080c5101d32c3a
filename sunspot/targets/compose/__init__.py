"""One host: a cluster, with its dashboards, its object store and Jupyter, in Docker Compose."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sunspot.targets.compose.settings import ComposeSettings as Settings

if TYPE_CHECKING:
    from sunspot.targets.compose.target import ComposeTarget

__all__ = ["Settings", "create"]


def create() -> ComposeTarget:
    """The compose target, with its records in the user's state directory."""
    from sunspot.targets.compose import target

    return target.create()
