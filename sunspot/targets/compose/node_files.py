"""The modules of ours that run in containers, which have no more than Ray."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import sunspot
from sunspot.targets.compose import mounts

PYTHON = "/usr/local/lib/sunspot/python"
"""The folder in the containers that is on Python's path."""

RAY_NODE = ("raylet.py",)
LOGICAL_GPUS = ("local/logical_gpus.py", "local/preload.py")
EXPORTER = ("collector.py", "compose/exporter.py", "gcs.py", "metrics.py")

_SOURCES = Path(sunspot.__file__).parent / "node"


def texts(names: Iterable[str]) -> dict[str, str]:
    """The text of each of these modules, by its name."""
    return {name: (_SOURCES / name).read_text() for name in names}


def config(name: str) -> str:
    """The name of the Compose config that has a module: "compose-exporter.py"."""
    return name.replace("/", "-")


def configs(names: Sequence[str]) -> list[dict[str, Any]]:
    """The configs that a service gets for these modules."""
    return [mounts.config(config(name), f"{PYTHON}/sunspot/node/{name}") for name in names]
