"""The targets that there are, by name. Each is a package, loaded when it is asked for."""

from __future__ import annotations

import importlib

from sunspot.errors import UsageError
from sunspot.targets.protocol import Target

MODULES = {"local": "sunspot.targets.local", "azure": "sunspot.targets.azure"}


PLANNED = ("compose", "kubernetes", "slurm")


def get(name: str) -> Target:
    """The target of that name ("local").

    Raises:
        UsageError: there is none, or it is not built yet.
    """
    if name in PLANNED:
        raise UsageError(
            f"target {name!r} is not built yet; run the stack on this machine with --target local"
        )
    if name not in MODULES:
        raise UsageError(f"there is no target {name!r}; there are: {', '.join(MODULES)}")
    return importlib.import_module(MODULES[name]).create()


def places(target: str | None = None) -> dict[str, Target]:
    """Every target that is built, by its name; only the one named, if one is.

    Raises UsageError for a name as `get` does.
    """
    return {name: get(name) for name in (MODULES if target is None else (target,))}
