"""The table of targets: the only code that knows a target by its name.

A target is a package with a `create()`, which returns its `Target` (targets/protocol.py). It may
have three more names. `Settings` is its own part of a stack file (settings.py). `fit(cluster,
problems)` returns the cluster with each node as this target needs it, and adds to `problems` the
nodes that it cannot provide. `LOOKS_AFTER_IDLE` is true if it follows `sunspot:idle`. What is slow
to load (Pulumi) is imported only by the methods that need it, since commands create every target.
"""

from __future__ import annotations

import importlib
from types import ModuleType

from sunspot.errors import UsageError
from sunspot.settings import Settings
from sunspot.spec import RayClusterConfig

PACKAGES = {
    "local": "sunspot.targets.local",
    "azure": "sunspot.targets.azure",
    "compose": "sunspot.targets.compose",
    "slurm": "sunspot.targets.slurm",
    "kubernetes": "sunspot.targets.kubernetes",
}

THIS_MACHINE = "local"
"""The target that needs only this machine."""

DEFAULT = "azure"
"""The target of a stack file that does not name one."""


def names() -> tuple[str, ...]:
    """The names that a stack file may give."""
    return tuple(PACKAGES)


def settings() -> dict[str, type[Settings]]:
    """The settings class of each target that has one, by the target's name."""
    found = {name: getattr(package(name), "Settings", None) for name in PACKAGES}
    return {name: kind for name, kind in found.items() if kind is not None}


def fit(name: str, cluster: RayClusterConfig, problems: list[str]) -> RayClusterConfig:
    """The cluster with each node as the target needs it.

    Args:
        name: the target's name.
        cluster: the cluster as the stack file describes it.
        problems: receives a line for each node that the target cannot provide.

    Raises:
        UsageError: as `package` does.
    """
    fitted = getattr(package(name), "fit", None)
    return cluster if fitted is None else fitted(cluster, problems)


def looks_after_idle(name: str) -> bool:
    """Whether the target follows a stack's `sunspot:idle`. Raises UsageError as `package` does."""
    return getattr(package(name), "LOOKS_AFTER_IDLE", False)


def package(name: str) -> ModuleType:
    """The package of the target of that name ("local").

    Raises:
        UsageError: there is no such target.
    """
    if name not in PACKAGES:
        known = ", ".join(PACKAGES)
        raise UsageError(f"there is no target {name!r}; choose one of: {known}")
    return importlib.import_module(PACKAGES[name])
