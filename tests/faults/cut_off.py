"""Commands that are cut off while they run."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

import pytest
from harness import Sunspot

# How long a command may take, also after an interrupt. Generous: the machine may be busy.
DEADLINE_S = 240.0

# After so many moments at which something was wrong, the others are not tried.
ENOUGH = 2


@dataclass(frozen=True, kw_only=True)
class Ended:
    """A command that ran to its end, or was ended.

    Attributes:
        code: its exit code; None if it had not ended after DEADLINE_S.
        out: what it printed on stdout.
        errors: what it printed on stderr.
        hits: how many signals reached it.
    """

    code: int | None
    out: str
    errors: str
    hits: int = 0

    @property
    def error(self) -> str:
        """The first line of its error, "" if it told of none."""
        lines = self.errors.splitlines()
        return next((line for line in lines if line.startswith("error: ")), "")

    def troubles(self) -> list[str]:
        """What is wrong with the answer, whatever was asked: a line each."""
        return [
            *(["it did not end"] if self.code is None else []),
            *([f"a traceback: {self.errors[-300:]!r}"] if "Traceback" in self.errors else []),
            *(["no sentence says why it failed"] if self._is_silent else []),
        ]

    @property
    def _is_silent(self) -> bool:
        killed = self.code is None or self.code == -signal.SIGKILL
        return bool(self.code) and not killed and self.errors.count("error: ") != 1

    def __str__(self) -> str:
        return f"exit code {self.code}, {self.out[-200:]!r}, {self.errors[-400:]!r}"


@dataclass(frozen=True, kw_only=True)
class Installed(Sunspot):
    """The program that a user's shell starts."""

    def command(self, *arguments: str) -> list[str]:
        return [str(Path(sys.executable).with_name("sunspot")), *arguments]

    def cut(
        self,
        *arguments: str,
        at: Iterable[float] = (),
        number: signal.Signals = signal.SIGINT,
        through: Callable[[list[str]], list[str]] = list,
    ) -> Ended:
        """Runs a command, and sends it the signal as many seconds after its start as `at` says.

        SIGINT goes to its process group, as from a terminal; any other to itself.

        Args:
            arguments: the command's.
            at: when the signal is sent, seconds.
            number: the signal.
            through: changes the command line, for a command in other surroundings.
        """
        with self.begun(*arguments, through=through) as running:
            return running.to_its_end(at, number)

    def begun(self, *arguments: str, through: Callable[[list[str]], list[str]] = list) -> Running:
        """Starts a command; it is killed at the end of the block if it has not ended."""
        return Running(through(self.command(*arguments)), self)


class Running:
    """A command that runs, and prints into memory: a full disk or a lost reader is no trouble."""

    def __init__(self, command: Sequence[str], sunspot: Sunspot) -> None:
        self._files = ExitStack()
        self._out, self._errors = (self._files.enter_context(_memory(name)) for name in "oe")
        self._started = time.monotonic()
        self._process = subprocess.Popen(
            command,
            cwd=sunspot.project,
            env=sunspot.environment(),
            stdin=subprocess.DEVNULL,
            stdout=self._out,
            stderr=self._errors,
            process_group=0,
        )

    def __enter__(self) -> Running:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        self._files.close()

    @property
    def pid(self) -> int:
        return self._process.pid

    def printed(self) -> str:
        return _read(self._out)

    def to_its_end(self, at: Iterable[float] = (), number: signal.Signals = signal.SIGINT) -> Ended:
        """Waits until it has ended, and sends it the signal meanwhile, as `cut` does."""
        hits = 0
        for moment in at:
            if self._ends_within(moment - (time.monotonic() - self._started)):
                break
            hits += 1
            if number == signal.SIGINT:
                os.killpg(self._process.pid, number)
            else:
                self._process.send_signal(number)
        code = self._process.returncode if self._ends_within(DEADLINE_S) else None
        return Ended(code=code, out=_read(self._out), errors=_read(self._errors), hits=hits)

    def _ends_within(self, seconds: float) -> bool:
        try:
            self._process.wait(max(0.0, seconds))
        except subprocess.TimeoutExpired:
            return False
        return True


@dataclass(frozen=True)
class Moments:
    """So many moments, spread over a command's run."""

    count: int

    def of(self, duration_s: float) -> list[float]:
        """They are in seconds after the start of a run that takes as long as this one."""
        return [duration_s * number / (self.count + 1) for number in range(1, self.count + 1)]

    def at_each(self, duration_s: float, one: Callable[[float], Iterable[str]]) -> list[str]:
        """What `one` finds wrong at these moments of such a run; the first two are enough."""
        found: dict[str, list[str]] = {}
        for moment in self.of(duration_s):
            if wrong := list(one(moment)):
                found[f"at {moment:.2f} s of {duration_s:.2f}"] = wrong
            if len(found) == ENOUGH:
                break
        return [f"{when}: {wrong}" for when, several in found.items() for wrong in several]


def nothing_wrong(found: Iterable[str]) -> None:
    """Fails with all that was found, if anything was."""
    if lines := list(found):
        pytest.fail("\n".join(lines), pytrace=False)


def _memory(name: str) -> TextIO:
    return os.fdopen(os.memfd_create(name), "w+", errors="replace")


def _read(file: TextIO) -> str:
    # Not by seeking, which would move where the command writes.
    size = os.fstat(file.fileno()).st_size
    return os.pread(file.fileno(), size, 0).decode(errors="replace")
