"""JupyterLab on this machine, whose notebooks use a cluster: `ray.init()` in them finds it."""

from __future__ import annotations

import importlib.util
import os
import shlex
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NoReturn

from sunspot.errors import UsageError
from sunspot.node.notebook import ENCRYPTED

# A kernel's interpreter that does not answer by then is taken for one that has Ray.
KERNEL_TIMEOUT_S = 20.0
_HAS_RAY = "import importlib.util, sys; sys.exit(importlib.util.find_spec('ray') is None)"

# In these names of an interpreter, Jupyter puts its own (jupyter_client/manager.py).
_JUPYTERS_OWN = {"python", "python3", f"python{sys.version_info[0]}.{sys.version_info[1]}"}


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
    """The Python kernels that JupyterLab offers and in which `import ray` fails, by their names.

    A kernel that another program starts, such as conda or a shell, is taken for one that has Ray.
    """
    try:
        from jupyter_client.kernelspec import (  # pyright: ignore[reportMissingImports]
            KernelSpecManager,
        )
    except ImportError:
        return []
    specs = {name: kernel["spec"] for name, kernel in KernelSpecManager().get_all_specs().items()}
    return sorted(
        name
        for name, spec in specs.items()
        if spec.get("language") == "python" and not _has_ray(*spec["argv"][:1])
    )


def _has_ray(program: str = "python") -> bool:
    is_python = Path(program).name.startswith("python")
    if program in {*_JUPYTERS_OWN, sys.executable} or not is_python:
        return True
    try:
        asked = subprocess.run(
            [program, "-c", _HAS_RAY],
            check=False,
            timeout=KERNEL_TIMEOUT_S,
            stdin=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        return asked.returncode == 0
    except subprocess.TimeoutExpired:
        return True
    except OSError:
        return False


def become_jupyter(arguments: Sequence[str], variables: Mapping[str, str]) -> NoReturn:
    """Replaces this process by JupyterLab on the loopback address, which then gets all signals."""
    # -P: a random.py among somebody's notebooks is no module of JupyterLab's.
    command = [sys.executable, "-P", "-m", "jupyterlab", "--ip=127.0.0.1", ENCRYPTED, *arguments]
    environment = {name: value for name, value in os.environ.items() if name != "RAY_AUTH_TOKEN"}
    os.execve(command[0], command, environment | dict(variables))  # noqa: S606
