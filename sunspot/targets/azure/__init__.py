"""Azure: a cluster on virtual machines, created by Pulumi."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sunspot.targets.azure.fit import fit
from sunspot.targets.azure.settings import AzureSettings as Settings

if TYPE_CHECKING:
    from sunspot.targets.azure.target import AzureTarget

__all__ = ["LOOKS_AFTER_IDLE", "Settings", "create", "fit"]

LOOKS_AFTER_IDLE = True


def create() -> AzureTarget:
    """The azure target, with its records in the user's state directory."""
    from sunspot.targets.azure import target

    return target.create()
