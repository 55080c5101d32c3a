"""What prctl(2) of Linux does for a process and its parent; nothing on other systems."""

from __future__ import annotations

import ctypes
import os
import signal
import sys

# Found beforehand: between fork and exec, the loader's lock may be another thread's.
_CALL = ctypes.CDLL(None).prctl if sys.platform == "linux" else None

# linux/prctl.h
_SET_PDEATHSIG, _SET_CHILD_SUBREAPER = 1, 36


def adopt_orphans() -> None:
    """Makes this process the parent of every descendant whose own parent ends."""
    _prctl(_SET_CHILD_SUBREAPER, 1)


def end_with_parent(parent: int) -> None:
    """Asks the kernel for a SIGTERM to this process when its parent ends.

    If the parent has ended already, of which the kernel tells nothing, this process exits.

    Args:
        parent: the parent's process id, which it wrote down before it forked.
    """
    _prctl(_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent:
        os._exit(1)


def _prctl(option: int, value: int) -> None:
    if _CALL is not None:
        _CALL(option, value, 0, 0, 0)
