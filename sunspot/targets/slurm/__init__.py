"""Slurm: a cluster within a job's allocation."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sunspot.targets.slurm.settings import SlurmSettings as Settings

if TYPE_CHECKING:
    from sunspot.targets.slurm.target import SlurmTarget

__all__ = ["Settings", "create"]


def create() -> SlurmTarget:
    """The slurm target, with its records in the user's state directory."""
    from sunspot.targets.slurm import target

    return target.create()
