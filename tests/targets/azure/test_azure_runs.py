"""What a killed `sunspot` leaves of Pulumi, a script in its place; the real one: tests/real."""

import os
import signal
import subprocess
import sys

import psutil
import pytest
from pulumi import automation as auto
from waiting import wait_for

from sunspot.node.processes import is_alive
from sunspot.targets.azure.engine import Pulumi
from sunspot.targets.azure.runs import Runs

# It locks the stack as `pulumi` does, ends in order when interrupted, and dies of SIGPIPE.
PULUMI = f"""#!{sys.executable}
import os, pathlib, signal, sys, time
signal.signal(signal.SIGPIPE, signal.SIG_DFL)
lock = pathlib.Path(os.environ["LOCK"])
words = sys.argv[1:]
if "version" in words:
    print("v3.999.0")
elif "cancel" in words:
    lock.unlink()
elif lock.exists():
    sys.exit(f"error: the stack is currently locked by 1 lock(s). created by {{lock.read_text()}}")
else:
    stopped = []
    signal.signal(signal.SIGINT, lambda *_: stopped.append(1))
    lock.write_text(f"me@here (pid {{os.getpid()}})")
    while "hold" in words and not stopped:
        time.sleep(0.05)
    print("up", flush=True)
    lock.unlink()
"""

US = """
import pathlib, sys
from sunspot.targets.azure.engine import Pulumi
from sunspot.targets.azure.runs import Runs
Pulumi(runs=Runs(pathlib.Path(sys.argv[1]))).run(["up", "--stack", "x", "hold"], ".", {})
"""


@pytest.fixture
def lock(tmp_path, monkeypatch):
    """The file that is the stack's lock; `pulumi` is first on the PATH."""
    (tmp_path / "pulumi").write_text(PULUMI)
    (tmp_path / "pulumi").chmod(0o755)
    monkeypatch.setenv("PATH", os.pathsep.join([str(tmp_path), os.environ["PATH"]]))
    monkeypatch.setenv("LOCK", str(tmp_path / "lock"))
    return tmp_path / "lock"


@pytest.fixture
def runs(tmp_path):
    return Runs(tmp_path / "records" / "x" / "pulumi")


def killed(lock, runs):
    """The `pulumi` of a command that was killed."""
    command = [sys.executable, "-c", US, str(runs.folder)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as us:
        wait_for("its record", lambda: lock.exists() and list(runs.folder.glob("[0-9]*")))
        (pulumi,) = psutil.Process(us.pid).children()
        us.kill()
    return pulumi


def up(runs, told):
    return Pulumi(progress=told.append, runs=runs).run(["up", "--stack", "x"], ".", {}).stdout


def test_the_run_of_a_killed_command_is_stopped_in_order(lock, runs):
    told = []
    pulumi = killed(lock, runs)
    assert up(runs, told) == "up"
    assert not is_alive(pulumi)
    assert not lock.exists()
    assert len(told) == 1
    assert f"process {pulumi.pid}" in told[0]


def test_the_lock_of_a_run_that_was_killed_too_is_released(lock, runs):
    told = []
    pulumi = killed(lock, runs)
    pulumi.send_signal(signal.SIGKILL)
    pulumi.wait()
    assert lock.exists()
    assert up(runs, told) == "up"
    assert len(told) == 1
    assert "lock" in told[0]


def test_a_run_that_ends_before_it_is_interrupted_is_no_error(runs):
    command = [sys.executable, "-c", "input()"]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as run, runs.recorded(run.pid):
        assert runs.stop(lambda _: run.communicate())


@pytest.mark.parametrize("recorded", [True, False])
def test_the_lock_of_anybody_else_is_kept(lock, runs, recorded):
    lock.write_text("someone@elsewhere (pid 1)")
    told = []
    with pytest.raises(auto.ConcurrentUpdateError):
        up(runs if recorded else None, told)
    assert lock.exists()
    assert told == []


def test_a_run_that_ended_leaves_no_record(lock, runs):
    assert up(runs, []) == "up"
    assert not runs.folder.parent.exists()
