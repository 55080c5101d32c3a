"""Runs what a node runs: modules of `sunspot.node` in a folder, without Sunspot's own package."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from pathlib import Path


def run_alone(code: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Runs Python code that finds the folder's modules and the installed libraries only."""
    libraries = sysconfig.get_paths()["purelib"]
    return subprocess.run(
        # -S: no .pth file, which would put this repository on the path.
        [sys.executable, "-S", "-c", code],
        env={"PATH": os.defpath, "PYTHONPATH": f"{folder}:{libraries}"},
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
