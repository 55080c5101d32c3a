"""Kubernetes: the manifest of a cluster for KubeRay, which the user applies."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sunspot.targets.kubernetes.settings import KubernetesSettings as Settings

if TYPE_CHECKING:
    from sunspot.targets.kubernetes.target import KubernetesTarget

__all__ = ["Settings", "create"]


def create() -> KubernetesTarget:
    """The kubernetes target."""
    from sunspot.targets.kubernetes import target

    return target.KubernetesTarget()
