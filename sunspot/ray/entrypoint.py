"""The command line of a job, which Ray gives to a shell."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

# What the shell does itself, without a program.
_BUILTINS = frozenset(
    (
        *(".", ":", "alias", "cd", "command", "eval", "exec", "exit", "export", "read", "return"),
        *("set", "shift", "trap", "type", "ulimit", "umask", "unset", "wait"),
    )
)


def shell_line(words: Sequence[str]) -> str:
    """The line by which the shell becomes the program, instead of waiting for it.

    To stop a job, Ray lists the shell's children and then ends all of them. A program that the
    shell starts in between would run on: its keeper ends with the job's supervisor
    (ray/dashboard/modules/job/job_supervisor.py, 2.60).
    """
    line = shlex.join(words)
    if words[0] in _BUILTINS:
        return line
    # `env` takes variables before the program, as the shell does.
    return f"exec env {line}" if "=" in words[0] else f"exec {line}"


def shown(line: str) -> str:
    """The command as it was submitted."""
    return line.removeprefix("exec ").removeprefix("env ")
