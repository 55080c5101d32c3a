"""Processes, named so that a recycled pid is never taken for one of ours."""

from __future__ import annotations

import contextlib
import os
import time
from dataclasses import dataclass

import psutil

# A pid file's start time is compared with the kernel's; psutil rounds it to a clock tick.
START_TIME_TOLERANCE_S = 0.05


# What is left when its session's leader has ended does nothing useful any more.
STRAGGLER_GRACE_S = 0.3


KILL_TIMEOUT_S = 5.0


@dataclass(frozen=True, kw_only=True)
class Process:
    """One process, named so that a recycled pid cannot be taken for it."""

    pid: int
    start_time: float

    @classmethod
    def current(cls) -> Process:
        return cls(pid=os.getpid(), start_time=psutil.Process().create_time())

    def is_running(self) -> bool:
        """True while this very process lives; a zombie or another process of that pid is False."""
        with contextlib.suppress(psutil.Error):
            process = psutil.Process(self.pid)
            same = abs(process.create_time() - self.start_time) <= START_TIME_TOLERANCE_S
            return same and process.status() != psutil.STATUS_ZOMBIE
        return False


def stop(processes: list[psutil.Process], grace_s: float) -> None:
    leaders = [process for process in processes if _leads_session(process)] or processes
    for process in leaders:
        with contextlib.suppress(psutil.Error):
            process.terminate()
    psutil.wait_procs(leaders, timeout=grace_s)
    _, alive = psutil.wait_procs(processes, timeout=STRAGGLER_GRACE_S)
    for process in alive:
        with contextlib.suppress(psutil.Error):
            process.kill()
    # Not wait_procs: it would also wait until somebody has reaped them.
    deadline = time.monotonic() + KILL_TIMEOUT_S
    while any(map(is_alive, alive)) and time.monotonic() < deadline:
        time.sleep(0.01)


def _leads_session(process: psutil.Process) -> bool:
    with contextlib.suppress(OSError):
        return os.getsid(process.pid) == process.pid
    return False


def is_alive(process: psutil.Process) -> bool:
    with contextlib.suppress(psutil.Error):
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    return False
