"""A node's units, run by their own lines: what systemd does with them, in its order."""

import contextlib
import shlex
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
from ending import below, kill
from sandbox import read_unit
from waiting import wait_for

from machines.namespaces import PATH
from machines.node import Node
from machines.processes import DEADLINE_S, environment

RAY = "sunspot-ray.service"
# What Ray's unit wants, in the order in which they may start.
BEFORE_RAY = ("docker", "image", "instance", "token")


@dataclass(frozen=True)
class Unit:
    """A unit of a node."""

    node: Node
    name: str

    def values(self, key: str) -> list[str]:
        """Every value of a key of [Service]; none where it is not there."""
        text = self.node.path(f"/etc/systemd/system/{_template(self.name)}").read_text()
        return read_unit(text)["Service"].get(key, [])

    def oneshot(self) -> None:
        """Runs all its ExecStart lines. Raises StepError at the first that fails."""
        for line in self.values("ExecStart"):
            self.node(*self.command(line))

    def command(self, line: str) -> list[str]:
        """A command line of the unit with the variables of its environment files, as they are."""
        _, _, instance = self.name.removesuffix(".service").partition("@")
        files = [file.removeprefix("-") for file in self.values("EnvironmentFile")]
        load = "".join(f"if [ -e {file} ]; then . {file}; fi; " for file in files)
        words = shlex.split(line.removeprefix("-").replace("%i", instance))
        return ["bash", "-c", f'set -a; {load}exec "$@"', "bash", *words]


@dataclass(frozen=True)
class RunningUnit:
    """A unit, while its main process runs. `journal` has what it prints."""

    unit: Unit
    main: subprocess.Popen[bytes]
    journal: Path

    @property
    def printed(self) -> str:
        return self.journal.read_text(errors="replace")

    def ready(self) -> bool:
        """Runs ExecStartPost; False when the main process ends before that does."""
        for line in self.unit.values("ExecStartPost"):
            post = subprocess.Popen(
                self.unit.node.command(*self.unit.command(line)), env=environment(PATH=PATH)
            )
            try:
                wait_for("the unit's start", lambda post=post: self._ended(post), DEADLINE_S)
                if self.main.poll() is not None:
                    return False
                assert post.returncode == 0, self.printed
            finally:
                _end(post)
        return True

    def _ended(self, post: subprocess.Popen[bytes]) -> bool:
        return post.poll() is not None or self.main.poll() is not None

    def stop(self) -> int:
        """`systemctl stop`: ExecStop, the main process's end, ExecStopPost. Its exit status."""
        for line in self.unit.values("ExecStop"):
            self.unit.node.run(*self.unit.command(line))
        _terminate(self.main)
        status = self.main.wait(int(self.unit.values("TimeoutStopSec")[0]))
        for line in self.unit.values("ExecStopPost"):
            self.unit.node.run(*self.unit.command(line))
        return status


def boot(node: Node) -> None:
    """Runs the units that Ray's wants; the node's engine must run."""
    for name in BEFORE_RAY:
        Unit(node, f"sunspot-{name}.service").oneshot()


@contextlib.contextmanager
def running(node: Node, name: str = RAY) -> Iterator[RunningUnit]:
    """Starts a unit up to its main process, and stops it at last."""
    unit = Unit(node, name)
    journal = node.root.parent / f"{node.name}.{name}.journal"
    for line in unit.values("ExecStartPre"):
        done = node.run(*unit.command(line))
        if done.returncode and not line.startswith("-"):
            raise StartPreError(done.stdout + done.stderr)
    (line,) = unit.values("ExecStart")
    with journal.open("wb") as output:
        main = subprocess.Popen(
            node.command(*unit.command(line)),
            env=environment(PATH=PATH),
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    started = RunningUnit(unit, main, journal)
    try:
        yield started
    finally:
        started.stop()


def _terminate(process: subprocess.Popen[bytes]) -> None:
    """What systemd does after ExecStop. nsenter hands no signal on: its child gets it."""
    with contextlib.suppress(psutil.NoSuchProcess):
        for child in psutil.Process(process.pid).children():
            child.terminate()


def _end(process: subprocess.Popen[bytes]) -> None:
    """Ends a process with all that it started."""
    kill(below(process.pid))
    process.kill()
    process.wait()


class StartPreError(AssertionError):
    """A line of ExecStartPre failed: the unit does not start. The message has its output."""


def _template(name: str) -> str:
    stem, at, _ = name.removesuffix(".service").partition("@")
    return f"{stem}{at}.service"
