"""`sunspot logs --node`: what real nodes printed, while they live and after they died."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness import ANSI, SMALL, Sunspot, kill_node
from waiting import wait_for

from sunspot.node.local.folder import ClusterFolder
from sunspot.node.local.launcher import TRIES
from sunspot.node.processes import Process
from sunspot.ray.handle import ClusterHandle

NAME = "mortal"
STACK = {
    "head_node": SMALL,
    "scaling_groups": [
        {
            "name": "late",
            "market": "spot",
            "min_workers": 0,
            "max_workers": 2,
            "worker_nodes": SMALL,
        }
    ],
    "autoscaler_config": {"cpu": 0.5, "memory_gb": 1},
}


@pytest.fixture(scope="module")
def folder(sunspot: Sunspot) -> Iterator[ClusterFolder]:
    """A cluster whose nodes the tests kill."""
    sunspot.write_stack(NAME, STACK)
    sunspot.ok("up", NAME)
    yield sunspot.folder(NAME)
    sunspot.ok("down", NAME)


def logs(sunspot: Sunspot, node: str, *flags: str, stack: str = NAME) -> tuple[str, str]:
    """What the command prints on stdout and on stderr."""
    done = sunspot("logs", "--stack", stack, "--node", node, *flags)
    assert done.returncode == 0, done.stderr
    assert not ANSI.search(done.stdout + done.stderr)
    return done.stdout, done.stderr


@pytest.mark.parametrize("node", ["head", "fixed-0"])
def test_a_nodes_log_and_where_rays_own_logs_lie(
    sunspot: Sunspot, cluster: ClusterHandle, node: str
):
    def notes_once_it_runs() -> str:
        text, notes = logs(sunspot, node, stack="main")
        return notes if "Ray runtime started" in text else ""

    # A node is a member before it says so.
    notes = wait_for("the log", notes_once_it_runs)
    # A note is one line, however long its path is.
    ray_logs = Path(notes.partition("of all nodes of this cluster: ")[2].strip())
    assert list(ray_logs.glob("raylet*"))
    assert list(ray_logs.glob("gcs_server*"))


def running(folder: ClusterFolder, node: str, *, but_not: list[Process]) -> Process | None:
    """The node's process, if it runs and is not one of these."""
    process = folder.process(node)
    return process if process and process.is_running() and process not in but_not else None


def test_ctrl_c_ends_the_printing_and_not_the_node(sunspot: Sunspot, cluster: ClusterHandle):
    with sunspot.started("logs", "--stack", "main", "--node", "head", "-f") as following:
        assert following.stdout is not None
        first = following.stdout.readline()
        following.send_signal(signal.SIGINT)
        _, errors = following.communicate(timeout=300)
    assert first.strip() or errors
    assert following.returncode == 130
    assert "Traceback" not in errors
    assert sunspot.folder("main").is_running("head")


def test_nodes_that_died_while_starting_or_later_and_a_dead_head(
    sunspot: Sunspot, folder: ClusterFolder
):
    with sunspot.started("scale", "--stack", NAME, "late=1") as scale:
        killed = []
        for _ in range(TRIES):
            node = wait_for("the node", lambda: running(folder, "late-0", but_not=killed))
            killed.append(node)
            kill_node(folder, "late-0")
        _, errors = scale.communicate(timeout=300)
    assert scale.returncode == 1
    assert "'late-0' could not start" in errors
    assert str(folder.log("late-0")) in logs(sunspot, "late-0")[1]

    sunspot.ok("scale", "--stack", NAME, "late=1")
    workers = [node.name for node in folder.nodes() if not node.is_head]
    # The autoscaler may have replaced the dead one before `scale` gave up: that one is starting.
    late = wait_for("a worker", lambda: next(filter(folder.is_running, workers), None))
    with sunspot.started("logs", "--stack", NAME, "--node", late, "-f") as following:
        assert following.stdout is not None
        # `scale` returns when the raylet answers; `ray start` says so a moment later.
        lines = iter(following.stdout.readline, "")
        assert any("Ray runtime started" in line for line in lines)
        kill_node(folder, late)
        following.communicate(timeout=300)  # it ends by itself
    assert following.returncode == 0
    assert "Ray runtime started" in logs(sunspot, late)[0]

    kill_node(folder, "head")
    assert sunspot("jobs", "--stack", NAME).returncode == 1
    assert "Ray runtime started" in logs(sunspot, "head")[0]
    assert "Ray runtime started" in logs(sunspot, late)[0]
