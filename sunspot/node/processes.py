"""Processes, identified so that a recycled pid is never taken for one of ours."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from dataclasses import dataclass

import psutil

# A pid file's start time is compared with the kernel's; psutil rounds it to a clock tick.
START_TIME_TOLERANCE_S = 0.05

# A process that outlives its session's leader does nothing useful any more.
STRAGGLER_GRACE_S = 0.3

KILL_TIMEOUT_S = 5.0


@dataclass(frozen=True, kw_only=True)
class Process:
    """One process, identified by its start time (seconds since the epoch) as well as its pid."""

    pid: int
    start_time: float

    @classmethod
    def current(cls) -> Process:
        """The process that this code runs in."""
        return cls.of(os.getpid())

    @classmethod
    def of(cls, pid: int) -> Process:
        """The process that has this pid now. Raises psutil.NoSuchProcess."""
        return cls(pid=pid, start_time=psutil.Process(pid).create_time())

    def is_running(self) -> bool:
        """True while this process is alive; a zombie, or another process with its pid, is not."""
        with contextlib.suppress(psutil.Error):
            process = psutil.Process(self.pid)
            return self._is(process) and process.status() != psutil.STATUS_ZOMBIE
        return False

    def is_recycled(self) -> bool:
        """Whether another process has its pid. As long as its session has members, none gets it."""
        with contextlib.suppress(psutil.Error):
            return not self._is(psutil.Process(self.pid))
        return False

    def _is(self, process: psutil.Process) -> bool:
        return abs(process.create_time() - self.start_time) <= START_TIME_TOLERANCE_S


def stop(processes: list[psutil.Process], grace_s: float) -> None:
    """Ends processes: SIGTERM to their session leaders, SIGKILL to those alive after `grace_s`."""
    leaders = [process for process in processes if _leads_session(process)] or processes
    for process in leaders:
        with contextlib.suppress(psutil.Error):
            process.terminate()
    psutil.wait_procs(leaders, timeout=grace_s)
    _, alive = psutil.wait_procs(processes, timeout=STRAGGLER_GRACE_S)
    for process in alive:
        with contextlib.suppress(psutil.Error):
            process.kill()
    # Not wait_procs: it would also wait until their parents have reaped them.
    deadline = time.monotonic() + KILL_TIMEOUT_S
    while any(map(is_alive, alive)) and time.monotonic() < deadline:
        time.sleep(0.01)


def _leads_session(process: psutil.Process) -> bool:
    with contextlib.suppress(OSError):
        return os.getsid(process.pid) == process.pid
    return False


def is_alive(process: psutil.Process) -> bool:
    """Whether a process runs, and is not a zombie."""
    with contextlib.suppress(psutil.Error):
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    return False


def way(code: int) -> str:
    """How a process ended, by its exit code, which is negative after a signal.

    For example "was killed by signal 9 (SIGKILL)", or "exited with code 1".
    """
    return f"was killed by {_signal(-code)}" if code < 0 else f"exited with code {code}"


def _signal(number: int) -> str:
    try:
        return f"signal {number} ({signal.Signals(number).name})"
    except ValueError:  # a real-time signal
        return f"signal {number}"
