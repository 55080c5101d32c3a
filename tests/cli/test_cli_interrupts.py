"""Ctrl-C, SIGTERM and a hang-up at any moment of a command, from Python's start to its end.

The moments are those at which Python imports a module or clears one away, as `python -v` tells
them: the same on a slow machine as on a fast one.
"""

import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAMS = {
    "script": [sys.executable, "-v", str(Path(sys.executable).with_name("sunspot"))],
    "module": [sys.executable, "-v", "-m", "sunspot.cli"],
}
READY = "import 'sunspot.cli.interrupts'"
PAGE = 4096  # bytes; the least that a pipe holds, by which the process is ahead of the reader


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def moment(line):
    """A line of `python -v` without what differs from run to run."""
    return re.sub(" at 0x[0-9a-f]+", "", line.rstrip("\n"))


def moments(program):
    """The moments of a whole run of `schema`, from the first at which it handles signals."""
    done = subprocess.run([*program, "schema"], capture_output=True, text=True, check=True)
    found = list(dict.fromkeys(map(moment, done.stderr.splitlines())))
    return found[next(n for n, line in enumerate(found) if line.startswith(READY)) + 1 :]


def interrupted(program, at, number):
    """The exit code of a run that gets a signal at a moment, and what it tells from there on."""
    with subprocess.Popen(
        [*program, "schema"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        pipesize=PAGE,
    ) as process:
        assert process.stderr is not None
        assert any(moment(line) == at for line in process.stderr), f"it never came to {at}"
        process.send_signal(number)
        told = process.stderr.read()
    return process.returncode, told


@pytest.mark.parametrize(
    ("program", "number", "tries"),
    [
        ("script", signal.SIGINT, 16),
        ("module", signal.SIGINT, 16),
        ("script", signal.SIGTERM, 4),
        ("script", signal.SIGHUP, 4),
    ],
)
def test_an_interrupt_at_any_moment_is_one_line_and_130(program, number, tries):
    found = moments(PROGRAMS[program])
    codes = set()
    for at in found[:: len(found) // tries]:
        code, told = interrupted(PROGRAMS[program], at, number)
        assert "Traceback" not in told, f"{at}: {told}"
        assert code == 0 or (code, told.count("error: interrupted\n")) == (130, 1), at
        codes.add(code)
    assert 130 in codes


def test_an_interrupt_in_an_exec_is_130_too(tmp_path):
    """Python alone would end such a process by SIGINT."""
    (tmp_path / "program.py").write_text(
        "import atexit, sys\n"
        "from sunspot import cli, stack\n"
        "atexit.register(print, 'ended')\n"
        "stack.load = lambda _: exec('raise KeyboardInterrupt')\n"
        "sys.argv = ['sunspot', 'up']\n"
        "cli.main()\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "program"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (130, "ended\n", "error: interrupted\n")
