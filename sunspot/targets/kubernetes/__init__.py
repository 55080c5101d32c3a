"""Kubernetes: a cluster as a RayCluster, which KubeRay's operator runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sunspot.targets.kubernetes.settings import KubernetesSettings as Settings

if TYPE_CHECKING:
    from sunspot.targets.kubernetes.target import KubernetesTarget

__all__ = ["Settings", "create"]


def create() -> KubernetesTarget:
    """The kubernetes target, with its records in the user's state directory."""
    from sunspot.targets.kubernetes import target

    return target.create()
