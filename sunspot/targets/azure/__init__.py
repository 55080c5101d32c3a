"""Azure: a cluster on virtual machines, made by Pulumi."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sunspot.targets.azure.target import AzureTarget


def create() -> AzureTarget:
    """The target, on the user's state directory."""
    from sunspot.targets.azure import target

    return target.create()
