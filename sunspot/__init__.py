"""Ray clusters on Azure spot capacity, declared once and run on several targets.

Importing this package loads nothing else: each name below is imported from its module on first use.
"""

from __future__ import annotations

# Not from `typing`, which takes longer to load than this package: type checkers know the name.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from sunspot.cluster import RayCluster
    from sunspot.errors import SunspotError, UsageError
    from sunspot.spec import (
        AutoscalerConfig,
        RayClusterConfig,
        RayNodeConfig,
        ScalingGroup,
        SimpleRayCluster,
    )
    from sunspot.stack import Stack

    __version__: str

__all__ = [
    "AutoscalerConfig",
    "RayCluster",
    "RayClusterConfig",
    "RayNodeConfig",
    "ScalingGroup",
    "SimpleRayCluster",
    "Stack",
    "SunspotError",
    "UsageError",
    "__version__",
]

_MODULES = {
    "AutoscalerConfig": "spec",
    "RayCluster": "cluster",
    "RayClusterConfig": "spec",
    "RayNodeConfig": "spec",
    "ScalingGroup": "spec",
    "SimpleRayCluster": "spec",
    "Stack": "stack",
    "SunspotError": "errors",
    "UsageError": "errors",
}


def __getattr__(name: str) -> Any:
    if name == "__version__":
        value = _version()
    elif name in _MODULES:
        from importlib import import_module

        value = getattr(import_module(f"sunspot.{_MODULES[name]}"), name)
    else:
        raise AttributeError(f"module 'sunspot' has no attribute {name!r}")
    globals()[name] = value  # the next access does not call this function
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def _version() -> str:
    from importlib import metadata

    return metadata.version("sunspot-ray")
