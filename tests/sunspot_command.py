"""The `sunspot` command as a user runs it: a process, in a project and a home of its own."""

from __future__ import annotations

import contextlib
import os
import secrets
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from sunspot.targets.records import STATE_DIRECTORY_VARIABLE

# How long a command may take. Generous: the machine may be busy.
DEADLINE_S = 300.0


def fresh(name: str) -> str:
    """A job's name that a second try of a test does not find taken: a cluster takes each once."""
    return f"{name}-{secrets.token_hex(3)}"


def clean_environment(state: Path, home: Path) -> dict[str, str]:
    """The caller's environment without what would steer Ray, Sunspot or colours."""
    steering = ("RAY_", "SUNSPOT_", "NO_COLOR", "FORCE_COLOR", "XDG_", "COLUMNS")
    kept = {k: v for k, v in os.environ.items() if not k.startswith(steering)}
    return kept | {STATE_DIRECTORY_VARIABLE: str(state), "HOME": str(home)}


@dataclass(frozen=True, kw_only=True)
class SunspotCommand:
    """Runs the command in a project directory; `state` and `home` belong to it alone."""

    project: Path
    state: Path
    home: Path

    def __call__(
        self,
        *arguments: str,
        cwd: Path | None = None,
        timeout: float = DEADLINE_S,
    ) -> subprocess.CompletedProcess[str]:
        """Runs `sunspot ARGUMENTS` to its end. No answer of the command is ever a traceback."""
        done = subprocess.run(
            self.command(*arguments),
            cwd=cwd or self.project,
            env=self.environment(),
            capture_output=True,
            text=True,
            check=False,
            timeout=timeout,
        )
        assert "Traceback" not in done.stderr, done.stderr
        return done

    def ok(self, *arguments: str, cwd: Path | None = None, timeout: float = DEADLINE_S) -> str:
        """The command's stdout; fails unless it exits with 0."""
        done = self(*arguments, cwd=cwd, timeout=timeout)
        assert done.returncode == 0, f"exit code {done.returncode}\n{done.stdout}{done.stderr}"
        return done.stdout

    @contextlib.contextmanager
    def started(self, *arguments: str) -> Iterator[subprocess.Popen[str]]:
        """The running command, its output in pipes; killed when the block ends before it does."""
        process = subprocess.Popen(
            self.command(*arguments),
            cwd=self.project,
            env=self.environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        with process:
            try:
                yield process
            finally:
                process.kill()

    def command(self, *arguments: str) -> list[str]:
        return [sys.executable, "-m", "sunspot.cli", *arguments]

    def environment(self) -> dict[str, str]:
        return clean_environment(self.state, self.home)
