"""The targets that there are. Only this table knows one by its name.

A target is a package that offers `create()`, which makes its `Target` (protocol.py). It may offer
two more names. `Settings` is its own part of a stack file (settings.py). `fit(cluster, problems)`
returns the cluster with what this target wants of each node, and adds what it cannot give to
`problems`. What is dear to import (Pulumi) a package loads only when `create()` is called.
"""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import TYPE_CHECKING

from sunspot.errors import UsageError

if TYPE_CHECKING:
    from sunspot.spec import RayClusterConfig
    from sunspot.targets.protocol import Target
    from sunspot.targets.settings import Settings

PACKAGES = {"local": "sunspot.targets.local", "azure": "sunspot.targets.azure"}
PLANNED = ("compose", "kubernetes", "slurm")

THIS_MACHINE = "local"
"""The target that needs nothing but this machine."""

DEFAULT = "azure"
"""The target of a stack file that names none."""


def names() -> tuple[str, ...]:
    """The names that a stack file may give, those that are not built yet among them."""
    return (*PACKAGES, *PLANNED)


def get(name: str) -> Target:
    """The target of that name ("local").

    Raises:
        UsageError: there is none, or it is not built yet.
    """
    return _package(name).create()


def all_targets(name: str | None = None) -> list[Target]:
    """Every target that is built; only the one named, if one is. Raises as `get` does."""
    return [get(one) for one in (PACKAGES if name is None else (name,))]


def settings() -> dict[str, type[Settings]]:
    """The settings class of each target that has settings of its own, by the target's name."""
    found = {name: getattr(_package(name), "Settings", None) for name in PACKAGES}
    return {name: kind for name, kind in found.items() if kind is not None}


def fit(name: str, cluster: RayClusterConfig, problems: list[str]) -> RayClusterConfig:
    """The cluster with what the target wants of each node; what it cannot have goes to `problems`.

    Raises UsageError as `get` does.
    """
    fitted = getattr(_package(name), "fit", None)
    return cluster if fitted is None else fitted(cluster, problems)


def _package(name: str) -> ModuleType:
    if name in PLANNED:
        raise UsageError(
            f"target {name!r} is not built yet; run the stack on this machine with "
            f"--target {THIS_MACHINE}"
        )
    if name not in PACKAGES:
        known = ", ".join(PACKAGES)
        raise UsageError(f"there is no target {name!r}; there are: {known}")
    return importlib.import_module(PACKAGES[name])
