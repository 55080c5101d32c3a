"""The processes below this one: all of them, and how they end.

A task adopts what its descendants leave behind (prctl(2), PR_SET_CHILD_SUBREAPER), so that nothing
of its own leaves its tree, whatever Slurm's process tracking does. It never touches other
processes: a neighbour's cluster on the same node is not in its tree.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from pathlib import Path

POLL_S = 0.05
KILL_TIMEOUT_S = 10.0


def descendants() -> list[int]:
    """The processes below this one that are not zombies."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            with contextlib.suppress(OSError):
                # The second field may contain spaces; it ends at the last parenthesis.
                state, parent, *_ = (entry / "stat").read_text().rpartition(")")[2].split()
                if state not in {"Z", "X"}:
                    children.setdefault(int(parent), []).append(int(entry.name))
    found, queue = [], [os.getpid()]
    while queue:
        below = children.get(queue.pop(), [])
        found += below
        queue += below
    return found


def end(leader: int | None, grace_s: float, orphans_s: float) -> list[int]:
    """Ends every process below this one; returns those that do not end.

    Args:
        leader: the process that gets a SIGTERM first and ends its own children in order.
        grace_s: how long it may take, in seconds; then all get a SIGKILL.
        orphans_s: how long the others may outlive it, in seconds.
    """
    if leader is not None:
        _signal(leader, signal.SIGTERM)
    deadline = time.monotonic() + grace_s
    while (left := descendants()) and time.monotonic() < deadline:
        reap()
        if leader not in left:
            # Later rounds leave it as it is: theirs would be later.
            deadline = min(deadline, time.monotonic() + orphans_s)
        time.sleep(POLL_S)
    deadline = time.monotonic() + KILL_TIMEOUT_S
    # Again and again: some may start others before they die.
    while (left := descendants()) and time.monotonic() < deadline:
        for pid in left:
            _signal(pid, signal.SIGKILL)
        reap()
        time.sleep(POLL_S)
    reap()
    return left


def reap() -> None:
    """Takes note of every child that has ended."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def _signal(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)
