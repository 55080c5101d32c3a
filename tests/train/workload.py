"""Calls a workload, or a function of one, in a process of its own and without a cluster.

Their modules' names are too common to be imported here.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

from training import DEADLINE_S, ROOT


def evaluate(expression: str, *modules: str) -> Any:
    """The value of an expression over the workloads' modules, by way of JSON."""
    code = f"import json, sys, {', '.join(modules)}; json.dump({expression}, sys.stdout)"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {"PYTHONPATH": str(ROOT / "workloads")},
        capture_output=True,
        text=True,
        check=False,
        timeout=DEADLINE_S,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def refused(name: str, *arguments: str) -> str:
    """What a workload says that refuses its arguments: no traceback, and no word of Ray."""
    done = subprocess.run(
        [sys.executable, f"workloads/{name}.py", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=DEADLINE_S,
    )
    assert done.returncode == 2, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    assert "Ray" not in done.stdout
    return done.stderr
