"""Why a node ended, from what its `ray start --block` printed."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from sunspot.node.processes import way

# `ray start` names each process that ended unexpectedly, and then copies the end of its log
# (scripts/scripts.py, _log_unexpected_subprocess_exit_details, 2.60).
_EXITED = re.compile(r"(\w+) \[exit code=(-?\d+)\]")
# Where it does not print to a terminal, before each line.
_PREFIX = re.compile(r"^[\d-]+ [\d:,]+\s+[A-Z]+ \w+\.py:\d+ -- ")
_STARTED = "Ray runtime started"
# What it says before that, while the node may be a member already.
_STARTING = "Local node IP: "
# The last line of what it says then.
_ALL_WELL = "Process exit logs will be saved to"
_COPY_BEGINS, _COPY_ENDS = re.compile(r"-+ BEGIN \S+ tail"), re.compile(r"-+ END \S+ tail")


def ending(lines: Sequence[str], count: int) -> list[str]:
    """Why it ended, a line for each process, and the last `count` lines that are its own.

    Left out are the copied logs, and what `ray start` says when all went well.
    """
    plain = [_PREFIX.sub("", line) for line in lines]
    own = list(_own(plain))
    began = [at for at, line in enumerate(own) if line.startswith(_ALL_WELL)]
    return [*_causes(plain), *own[began[-1] + 1 if began else 0 :][-count:]]


def _causes(lines: Sequence[str]) -> list[str]:
    exits = [match.groups() for match in map(_EXITED.fullmatch, map(str.strip, lines)) if match]
    if exits:
        return [f"{name} {way(int(code))}" for name, code in exits]
    # Where it is killed itself, its last lines say that all is well.
    last = next(filter(None, map(str.strip, reversed(lines))), "")
    was_well = last.startswith(_STARTING) or any(_STARTED in line for line in lines)
    return ["the node's own process, `ray start`, was killed or stopped"] if was_well else []


def _own(lines: Sequence[str]) -> Iterator[str]:
    copied = False
    for line in lines:
        if _COPY_BEGINS.match(line):
            copied = True
        if not copied:
            yield line
        if _COPY_ENDS.match(line):
            copied = False
