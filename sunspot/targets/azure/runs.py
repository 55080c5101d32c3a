"""The `pulumi` processes that change a stack, recorded so that a killed command's can be ended.

`pulumi` outlives a `sunspot` that is killed (SIGKILL, out of memory), and holds the stack's lock.
One that is killed itself leaves the lock behind, which its next run refuses to ignore.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil

from sunspot.node.files import write_private
from sunspot.node.processes import Process
from sunspot.targets.protocol import Progress

POLL_S = 0.2

# As a backend on a disk or in a bucket names the holder of a lock (pkg/backend/diy/lock.go, 3.258).
_HOLDER = re.compile(r"\(pid (\d+)\)")


@dataclass(frozen=True)
class Runs:
    """The runs that change one stack, one file each in `folder` while they last.

    The caller holds the lock of the stack's records, so a run that it finds recorded has lost the
    command that started it.
    """

    folder: Path

    @contextlib.contextmanager
    def recorded(self, pid: int) -> Iterator[None]:
        """Records a process as long as the block lasts."""
        file = self.folder / str(pid)
        with contextlib.suppress(psutil.NoSuchProcess):
            process = Process.of(pid)
            write_private(file, json.dumps(asdict(process)))
        try:
            yield
        finally:
            file.unlink(missing_ok=True)
            for folder in (self.folder, self.folder.parent):
                with contextlib.suppress(OSError):  # another run, or the stack's record
                    folder.rmdir()

    def stop(self, progress: Progress) -> bool:
        """Interrupts each run that goes on, and waits until it has finished its step.

        Returns whether there was one.
        """
        running = [process for process in self._read() if process.is_running()]
        for process in running:
            progress(
                f"stopping pulumi (process {process.pid}), whose command was killed: it finishes "
                "what it has begun, which may take minutes"
            )
            with contextlib.suppress(ProcessLookupError):  # it has ended meanwhile
                os.kill(process.pid, signal.SIGINT)
        while any(process.is_running() for process in running):
            time.sleep(POLL_S)
        return bool(running)

    def forget(self, pids: set[int]) -> bool:
        """Forgets these runs if all of them are recorded; returns whether they were."""
        files = [self.folder / str(pid) for pid in pids]
        known = bool(files) and all(file.exists() for file in files)
        for file in files if known else ():
            file.unlink()
        return known

    def _read(self) -> Iterator[Process]:
        for file in self.folder.glob("[0-9]*"):
            with contextlib.suppress(OSError, ValueError, TypeError):
                yield Process(**json.loads(file.read_text()))


def holders(complaint: str) -> set[int]:
    """The processes that hold the lock of which `pulumi` complains; empty if it does not say."""
    return {int(pid) for pid in _HOLDER.findall(complaint)}
