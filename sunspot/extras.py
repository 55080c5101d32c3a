"""The extras of this package (pyproject.toml), for messages where one is not installed."""

from __future__ import annotations

import shlex
import sys


def to_install(extra: str) -> str:
    """The command that adds an extra to this command's environment; the package is not on PyPI."""
    python = shlex.quote(sys.executable)
    return f"in a clone of Sunspot's repository, {python} -m pip install '.[{extra}]'"
