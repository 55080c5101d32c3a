"""What prctl(2) of Linux does for a process and its parent; nothing on other systems."""

from __future__ import annotations

import ctypes
import signal
import sys

# Found beforehand: between fork and exec, the loader's lock may be another thread's.
_CALL = ctypes.CDLL(None).prctl if sys.platform == "linux" else None

# linux/prctl.h
_SET_PDEATHSIG, _SET_CHILD_SUBREAPER = 1, 36


def adopt_orphans() -> None:
    """Makes this process the parent of every descendant whose own parent ends."""
    _prctl(_SET_CHILD_SUBREAPER, 1)


def end_with_parent() -> None:
    """Asks the kernel for a SIGTERM to this process when its parent ends."""
    _prctl(_SET_PDEATHSIG, signal.SIGTERM)


def _prctl(option: int, value: int) -> None:
    if _CALL is not None:
        _CALL(option, value, 0, 0, 0)
