"""Processes that may end while a test looks at them, which is no error."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable

import psutil


def has_ended(pid: int) -> bool:
    """Whether no process has that pid, or only a zombie."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def name_of(process: psutil.Process) -> str:
    """Its name; "" if it has ended."""
    with contextlib.suppress(psutil.Error, OSError):
        return process.name()
    return ""


def words_of(process: psutil.Process) -> list[str]:
    """Its command line; none if it has ended."""
    with contextlib.suppress(psutil.Error, OSError):
        return process.cmdline()
    return []


def variables_of(process: psutil.Process) -> dict[str, str]:
    """Its environment; none if it has ended."""
    with contextlib.suppress(psutil.Error, OSError):
        return process.environ()
    return {}


def below(pid: int) -> list[psutil.Process]:
    """The descendants of a process; none if it has ended."""
    with contextlib.suppress(psutil.NoSuchProcess):
        return psutil.Process(pid).children(recursive=True)
    return []


def kill(processes: Iterable[psutil.Process]) -> None:
    """SIGKILL for those that have not ended: with the first of them, others may."""
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
