"""Pulumi's command as `sunspot` runs it, with a script in its place; the real one: tests/real."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from ending import has_ended
from pulumi import automation as auto
from waiting import wait_for

from sunspot.targets.azure.engine import EngineMissingError, Pulumi, find_engine

DEADLINE_S = 120

# An interrupt at the worst moment: the Automation API has a thread, and no `finally` yet.
UP = """
import os, signal, sys
from pathlib import Path
from pulumi.automation import Stack
from sunspot.targets.azure.automation import AzureStack
from sunspot.targets.azure.engine import Pulumi
set_up = Stack._setup_event_log
def interrupted(*arguments):
    made = set_up(*arguments)
    os.kill(os.getpid(), signal.SIGINT)
    return made
Stack._setup_event_log = interrupted
AzureStack("x", Path(sys.argv[1]), Pulumi()).up(print)
"""

# What ends in order when it is interrupted, as `pulumi` does; `stubborn` only when killed.
PULUMI = f"""#!{sys.executable}
import os, signal, sys, time
if "version" in sys.argv:
    # From v3.206.0 on, events go by gRPC and not through a file.
    print("v3.200.0")
    sys.exit()
if "stack" in sys.argv:
    sys.exit()
folder, *words = sys.argv[2:]
interrupts = 0
def interrupted(*_):
    global interrupts
    interrupts += 1
    with open(folder + "/interrupts", "a") as file:
        file.write("x")
    if "stubborn" not in words:
        sys.exit(1)
signal.signal(signal.SIGINT, interrupted)
if "child" in words:
    import subprocess
    child = subprocess.Popen(["sleep", "1000"])
    print(child.pid, file=open(folder + "/child", "w"))
if "fail" in words:
    sys.exit("it went wrong")
if "wait" in words:
    open(folder + "/pid.new", "w").write(str(os.getpid()))
    os.rename(folder + "/pid.new", folder + "/pid")
    while True:
        time.sleep(0.05)
print("said", *words)
"""

US = """
import io, os, signal, sys
from sunspot.targets.azure import engine as azure_engine
from sunspot.targets.azure.engine import Pulumi
def terminate(*_): raise KeyboardInterrupt
signal.signal(signal.SIGTERM, terminate)
azure_engine.KILL_AFTER_S = 0.5
class Stderr(io.RawIOBase):
    told = False
    def writable(self): return True
    def write(self, text):
        if not self.told:
            self.told = True
            os.kill(os.getpid(), signal.SIGTERM)
        return os.write(2, text)
if "twice" in sys.argv:  # the second, too, while the line about the first is written
    sys.stderr = io.TextIOWrapper(io.BufferedWriter(Stderr()))
try:
    tell = lambda text: print(text, file=sys.stderr, flush=True)
    Pulumi(progress=tell).run(sys.argv[1:], ".", {})
except KeyboardInterrupt:
    sys.exit(130)
"""


@pytest.fixture
def command(tmp_path, monkeypatch):
    """A `pulumi` first on the PATH, whose folder is the test's."""
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "pulumi").write_text(PULUMI)
    (tools / "pulumi").chmod(0o755)
    monkeypatch.setenv("PATH", os.pathsep.join([str(tools), os.environ["PATH"]]))
    return tmp_path


def interrupts(folder: Path) -> int:
    file = folder / "interrupts"
    return len(file.read_text()) if file.exists() else 0


def started(folder, *words):
    """We, in a process of our own, with `pulumi` running."""
    us = subprocess.Popen(
        [sys.executable, "-c", US, str(folder), *words], stderr=subprocess.PIPE, text=True
    )
    wait_for("pulumi to run", (folder / "pid").exists, DEADLINE_S)
    return us, int((folder / "pid").read_text())


def test_what_it_prints_and_how_it_ends(command):
    pulumi = Pulumi()
    lines = []
    result = pulumi.run([str(command), "a"], str(command), {}, lines.append)
    assert (result.stdout, result.code, lines) == ("said a", 0, ["said a"])
    with pytest.raises(auto.CommandError, match="it went wrong"):
        pulumi.run([str(command), "fail"], str(command), {})


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_an_interrupt_reaches_it_once_and_is_waited_for(command, number):
    us, pid = started(command, "wait")
    us.send_signal(number)
    _, said = us.communicate(timeout=DEADLINE_S)
    assert us.returncode == 130
    assert interrupts(command) == 1
    assert not psutil.pid_exists(pid)
    assert "stopping pulumi" in said
    assert "pulumi cancel" not in said


def test_an_interrupt_between_two_commands_leaves_no_thread_that_keeps_us_alive(command):
    (command / "Pulumi.yaml").write_text("name: x\nruntime: python\n")
    arguments = [sys.executable, "-c", UP, str(command)]
    done = subprocess.run(
        arguments, capture_output=True, text=True, timeout=DEADLINE_S, check=False
    )
    assert done.returncode == -signal.SIGINT, done.stderr
    assert done.stdout == ""


def test_what_does_not_end_is_killed_with_all_that_it_started(command):
    us, pid = started(command, "wait", "stubborn", "child", "--stack", "dev")
    child = int((command / "child").read_text())
    us.send_signal(signal.SIGTERM)
    wait_for("the first interrupt", lambda: interrupts(command) == 1, DEADLINE_S)
    assert us.poll() is None
    us.send_signal(signal.SIGTERM)
    _, said = us.communicate(timeout=DEADLINE_S)
    assert us.returncode == 130
    assert interrupts(command) == 2
    wait_for("the child's end", lambda: has_ended(child), DEADLINE_S)
    assert has_ended(pid)
    assert "pulumi cancel -s dev" in " ".join(said.split())


def test_an_interrupt_in_the_middle_of_a_line_is_only_an_interrupt(command):
    us, pid = started(command, "wait", "stubborn", "twice")
    us.send_signal(signal.SIGTERM)
    _, said = us.communicate(timeout=DEADLINE_S)
    assert us.returncode == 130, said
    assert has_ended(pid)
    assert "aborting pulumi" in said


def test_no_command_is_an_error_of_its_own(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(EngineMissingError, match="no `pulumi` command"):
        find_engine()
