"""`RayCluster` on a machine outside, and commands beside it, with only the documented Role."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
from collections.abc import Iterator

import requests
from machines.processes import DEADLINE_S
from ray_clusters import RayCluster
from sunspot_command import SunspotCommand

# A driver by Ray Client, whose block goes on until a line comes, and then fails.
_PROGRAM = """
import sys, ray
from sunspot.cluster import RayCluster

states = []
note = lambda state, _: states.append(state.name)
with RayCluster.from_stack("course", on_state=note) as cluster:
    @ray.remote(label_selector={"ray.io/node-group": "workers"})
    def seven():
        print("said by a task")
        return 7
    print("address", cluster.handle.driver_address)
    print("result", ray.get(seven.remote()), states[-1])
    sys.stdin.readline()
    raise ValueError("of the block")
"""


def test_a_block_that_fails_leaves_nothing_and_all_commands_work_meanwhile(
    sunspot: SunspotCommand, theirs: RayCluster
):
    with _driver(sunspot) as driver:
        assert driver.stdout is not None
        said = []
        for line in driver.stdout:
            said.append(line)
            if line.startswith("result"):
                break
        assert any(line.startswith("address ray://127.0.0.1:") for line in said), said
        assert said[-1] == "result 7 ACTIVE\n"
        _use(sunspot)
        assert theirs.pods("workers") == []
        rest, errors = driver.communicate("\n", timeout=DEADLINE_S)
    assert driver.returncode == 1, errors
    assert "ValueError: of the block" in errors
    assert "said by a task" in "".join([*said, rest, errors])
    assert theirs.objects() == []
    assert "nothing to do" in sunspot.ok("down", "course")


def _use(sunspot: SunspotCommand) -> None:
    """The commands that need rights of their own; `submit` and `down` are in test_one_command."""
    sunspot.ok("scale", "course", "workers=0")
    assert sunspot.ok("ssh", "course", "--", "echo", "here") == "here\n"
    assert "Ray runtime started" in sunspot.ok("logs", "--stack", "course", "--node", "head")
    with sunspot.started("forward", "course", "8265") as process:
        assert process.stdout is not None
        jobs = f"{process.stdout.readline().strip()}/api/jobs/"
        assert requests.get(jobs, timeout=60).status_code == 401
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 130


@contextlib.contextmanager
def _driver(sunspot: SunspotCommand) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        [sys.executable, "-u", "-c", _PROGRAM],
        cwd=sunspot.project,
        env=sunspot.environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield process
        except BaseException:
            process.send_signal(signal.SIGINT)  # it takes the cluster down
            raise
