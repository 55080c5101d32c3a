"""Commands and copies in the head's container."""

from __future__ import annotations

import shlex
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from sunspot.errors import UsageError
from sunspot.targets.compose.engine import Engine
from sunspot.targets.compose.errors import no_docker
from sunspot.targets.ssh import HEAD_PREFIX


@dataclass(frozen=True)
class HeadShell:
    """The shell in one container, the head's."""

    engine: Engine
    container: str

    def run(self, remote: Sequence[str]) -> int:
        """Runs a shell, or a command, at this terminal; returns its exit code.

        One word is a line for the container's shell, several are a command with its arguments.
        """
        terminal = ["--tty"] if sys.stdin.isatty() and sys.stdout.isatty() else []
        line = list(remote) if len(remote) < 2 else [shlex.join(remote)]
        command = ["bash", "-c", *line] if line else ["bash"]
        return self._call("exec", "--interactive", *terminal, self.container, *command)

    def copy(self, source: str, destination: str) -> int:
        """Copies files with `docker cp`; a path in the container is written head:PATH.

        Raises:
            UsageError: not exactly one path is in the container.
        """
        paths = [source, destination]
        if sum(path.startswith(HEAD_PREFIX) for path in paths) != 1:
            raise UsageError(
                f"exactly one of SOURCE and DEST must be on the head, written {HEAD_PREFIX}PATH; "
                f"for instance: sunspot rsync data/ {HEAD_PREFIX}data/"
            )
        return self._call("cp", *map(self._path, paths))

    def _path(self, path: str) -> str:
        """A path as `docker cp` takes it, which starts at the root and not in a home."""
        if not path.startswith(HEAD_PREFIX):
            return path
        [found] = self.engine.inspect(self.container)
        home = PurePosixPath(found["Config"]["WorkingDir"] or "/")
        return f"{self.container}:{home / path.removeprefix(HEAD_PREFIX)}"

    def _call(self, *arguments: str) -> int:
        try:
            command = ["docker", *arguments]
            return subprocess.call(command, env=self.engine.environment())
        except FileNotFoundError:
            raise no_docker() from None
