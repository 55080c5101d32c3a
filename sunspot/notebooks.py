"""JupyterLab on this machine, whose notebooks use a cluster: `ray.init()` in them finds it."""

from __future__ import annotations

import importlib.util
import os
import shlex
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import NoReturn

from sunspot.errors import UsageError

# A kernel's interpreter that does not answer by then is taken for one that has Ray.
KERNEL_TIMEOUT_S = 20.0
_HAS_RAY = "import importlib.util, sys; sys.exit(importlib.util.find_spec('ray') is None)"


def check_installed() -> None:
    """Checks that JupyterLab is in this environment, beside Ray.

    Raises:
        UsageError: it is not; the message has the command that installs it.
    """
    if importlib.util.find_spec("jupyterlab") is None:
        python = shlex.quote(sys.executable)
        raise UsageError(
            f"JupyterLab is not in the environment of this command. Install it there: {python} -m "
            "pip install jupyterlab"
        )


def kernels_without_ray() -> list[str]:
    """The Python kernels that JupyterLab offers and in which `import ray` fails, by their names."""
    try:
        from jupyter_client.kernelspec import (  # pyright: ignore[reportMissingImports]
            KernelSpecManager,
        )
    except ImportError:
        return []
    found = KernelSpecManager().get_all_specs()
    return sorted(
        name
        for name, kernel in found.items()
        if kernel["spec"].get("language") == "python" and not _has_ray(kernel["spec"]["argv"][0])
    )


def _has_ray(python: str) -> bool:
    if python == sys.executable:
        return True
    try:
        asked = [python, "-c", _HAS_RAY]
        return subprocess.run(asked, check=False, timeout=KERNEL_TIMEOUT_S).returncode == 0
    except subprocess.TimeoutExpired:
        return True
    except OSError:
        return False


def become_jupyter(arguments: Sequence[str], variables: Mapping[str, str]) -> NoReturn:
    """Replaces this process by JupyterLab on the loopback address, which then gets all signals."""
    command = [sys.executable, "-m", "jupyterlab", "--ip=127.0.0.1", *arguments]
    environment = {name: value for name, value in os.environ.items() if name != "RAY_AUTH_TOKEN"}
    os.execve(command[0], command, environment | dict(variables))  # noqa: S606
