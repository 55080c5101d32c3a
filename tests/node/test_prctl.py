"""What ends with its parent, also where the parent was faster."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from waiting import wait_for

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells of a parent")

# The child says its pid, and asks the kernel at once, or when it has another parent.
FORKS = """
import os, sys, time
from sunspot.node import prctl
parent = os.getpid()
if os.fork() == 0:
    if sys.argv[1] == "at once":
        prctl.end_with_parent(parent)
    print(os.getpid(), flush=True)
    while os.getppid() == parent:
        time.sleep(0.01)
    if sys.argv[1] != "at once":
        prctl.end_with_parent(parent)
time.sleep(600)
"""


@pytest.mark.parametrize("when", ["at once", "later"])
def test_a_child_ends_when_its_parent_is_killed(when: str):
    with subprocess.Popen(
        [sys.executable, "-c", FORKS, when], stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        os.kill(parent.pid, signal.SIGKILL)
        wait_for("the child to end", lambda: not Path(f"/proc/{child}").exists())
