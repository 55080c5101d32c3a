"""What a cluster left behind, found without its records."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path


def pids_with_files_in(*directories: Path) -> set[int]:
    """Other processes that hold a file of these folders open, also a deleted one (Linux only).

    Finds what has lost its mark: Ray's agents overwrite their environment.
    """
    within = tuple(f"{directory}{os.sep}" for directory in directories)
    found = set()
    for link in Path("/proc").glob("[0-9]*/fd/*"):
        with contextlib.suppress(OSError):
            if str(link.readlink()).startswith(within):
                found.add(int(link.parts[2]))
    return found - {os.getpid()}  # Ray keeps a driver's log open after ray.shutdown
