"""What a stack file says to Pulumi and its providers, which Sunspot itself does not read."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sunspot import yaml_files


def of(stack: str, folder: Path) -> Path:
    """The file of a stack of the project in `folder`."""
    return folder / f"Pulumi.{stack}.yaml"


def top(file: Path) -> Mapping[str, Any]:
    """The keys at the top of a stack file, or of the project's file."""
    document = yaml_files.load(file)
    return document if isinstance(document, dict) else {}


def config(file: Path) -> Mapping[str, Any]:
    """The keys of its `config:` block."""
    block = top(file).get("config")
    return block if isinstance(block, dict) else {}
