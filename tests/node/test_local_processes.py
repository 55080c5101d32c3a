"""Finding and ending the processes of a local cluster."""

import os
import subprocess
import sys
from dataclasses import replace

import psutil
import pytest
from ending import below, has_ended, kill
from waiting import wait_for

from sunspot.node.local import folder as local
from sunspot.node.local.folder import ClusterFolder, NodeShape
from sunspot.node.processes import Process

DEADLINE_S = 10.0
SHAPE = NodeShape(
    group="workers", market="spot", cpus=2, gpus=0, memory=2**31, flags=[], environment={}
)


@pytest.fixture
def folder(tmp_path):
    return ClusterFolder(tmp_path / "clusters" / "dev")


def test_the_current_process_runs_and_a_recycled_pid_does_not():
    current = Process.current()
    assert current.pid == os.getpid()
    assert current.is_running()
    assert not replace(current, start_time=current.start_time - 1).is_running()
    assert not replace(current, start_time=current.start_time + 1).is_running()


def test_a_zombie_counts_as_dead_and_so_does_one_that_is_gone(folder):
    child = subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=-1)
    process = Process.of(child.pid)
    folder.record_process("head", process)
    assert folder.process("head") == process
    assert folder.is_running("head")
    child.kill()
    wait_for("a zombie", lambda: psutil.Process(child.pid).status() == psutil.STATUS_ZOMBIE)
    assert not folder.is_running("head")
    child.communicate()
    assert not folder.is_running("head")


def test_a_node_that_has_not_started_has_no_process(folder):
    folder.add_node(SHAPE)
    assert folder.process("workers-0") is None
    assert not folder.is_running("workers-0")


# The parent starts a child without any environment, as Ray's agents look after they have set
# their title, and tells its pid. The child tells when it is ready.
PARENT = """
import subprocess, sys
code = "print(1, flush=True); import time; time.sleep(60)"
child = subprocess.Popen([sys.executable, "-c", code], env={}, stdout=subprocess.PIPE)
child.stdout.readline()
print(child.pid, flush=True)
child.wait()
"""
STUBBORN = """
import signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print(0, flush=True)
time.sleep(60)
"""


@pytest.fixture
def start(folder):
    """Starts Python with a cluster's mark in its environment; returns it, and what it told."""
    started: list[subprocess.Popen[bytes]] = []

    def start(code, node="head", place=None, start_new_session=True):
        process = subprocess.Popen(
            [sys.executable, "-c", code],
            env=os.environ
            | {local.CLUSTER_VARIABLE: str(place or folder.path), local.NODE_VARIABLE: node},
            stdout=subprocess.PIPE,
            start_new_session=start_new_session,
        )
        started.append(process)
        assert process.stdout is not None
        return process, int(process.stdout.readline())

    yield start
    for process in started:
        kill(below(process.pid))
        process.kill()
        process.communicate()


@pytest.mark.parametrize("new_session", [True, False])
def test_marked_processes_and_their_children_are_found_and_ended(folder, start, new_session):
    parent, child = start(PARENT, start_new_session=new_session)
    assert local.CLUSTER_VARIABLE not in psutil.Process(child).environ()
    found = {process.pid for process in folder.processes()}
    assert found == {parent.pid, child}
    folder.stop()
    assert folder.processes() == []
    assert has_ended(parent.pid)
    assert has_ended(child)


def test_those_of_a_node_are_found_when_its_own_process_was_killed(folder, start):
    parent, child = start(PARENT, start_new_session=True)
    started = psutil.Process(parent.pid).create_time()
    folder.record_process("head", Process(pid=parent.pid, start_time=started))
    sessions = folder.sessions()
    parent.kill()
    parent.wait()
    assert [process.pid for process in folder.processes()] == [child]
    folder.forget_process("head")
    assert [process.pid for process in folder.processes(sessions=sessions)] == [child]
    assert folder.processes() == []
    folder.record_process("head", Process(pid=parent.pid, start_time=started))
    folder.stop()
    assert has_ended(child)


def test_the_session_of_a_recycled_pid_is_not_ours(folder):
    folder.record_process("head", Process(pid=os.getpid(), start_time=1.0))
    assert folder.sessions() == set()


def test_one_that_ignores_sigterm_is_killed_after_the_grace(folder, start):
    stubborn, _ = start(STUBBORN, start_new_session=True)
    folder.stop(grace_s=0.1)
    assert has_ended(stubborn.pid)


def test_one_that_obeys_may_end_in_order(folder, start, tmp_path):
    start(
        "import signal, sys, time\n"
        "from pathlib import Path\n"
        "def end(*_):\n"
        f"    Path({str(tmp_path / 'said')!r}).write_text('bye')\n"
        "    sys.exit()\n"
        "signal.signal(signal.SIGTERM, end)\n"
        "print(0, flush=True)\n"
        "time.sleep(60)",
        start_new_session=True,
    )
    folder.stop(grace_s=DEADLINE_S)
    assert (tmp_path / "said").read_text() == "bye"


def test_one_node_is_ended_and_the_others_live(folder, start):
    first, child = start(PARENT, node="workers-0", start_new_session=True)
    second, _ = start(PARENT, node="workers-1", start_new_session=True)
    assert {process.pid for process in folder.processes("workers-0")} == {first.pid, child}
    folder.stop("workers-0", grace_s=1)
    assert has_ended(first.pid)
    assert has_ended(child)
    assert second.poll() is None


def test_another_clusters_processes_are_not_ours(folder, start):
    other, _ = start(PARENT, place=f"{folder.path}2", start_new_session=True)
    assert folder.processes() == []
    folder.stop()
    assert other.poll() is None


def test_nothing_to_stop_is_not_an_error(folder):
    folder.stop()
    folder.stop("workers-0")


def test_the_caller_is_never_ended_though_it_carries_the_mark(folder):
    # As in a job that runs `sunspot down` on its own cluster, or a launcher that cleans up.
    code = (
        "import sys\n"
        "from pathlib import Path\n"
        "from sunspot.node.local.folder import ClusterFolder\n"
        "folder = ClusterFolder(Path(sys.argv[1]))\n"
        "folder.stop(grace_s=0.1)\n"
        "print('alive', folder.processes())\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(folder.path)],
        env=os.environ | {local.CLUSTER_VARIABLE: str(folder.path)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "alive []\n"), done.stderr
