"""This machine: a cluster as processes."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sunspot.targets.local.target import LocalTarget

LOOKS_AFTER_IDLE = True


def create() -> LocalTarget:
    """The local target, with its records in the user's state directory."""
    from sunspot.targets.local import target

    return target.create()
