"""What this machine remembers of clusters: one folder a cluster, and a lock beside it.

<state directory>/<target's folder>/NAME/       a cluster's files
<state directory>/<target's folder>/.NAME.lock  held while a command works on it
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import platformdirs

from sunspot.errors import SunspotError, UsageError
from sunspot.node.files import locked
from sunspot.stack import check_name
from sunspot.targets.protocol import Progress, silent

STATE_DIRECTORY_VARIABLE = "SUNSPOT_STATE_DIR"

LOCK_POLL_S = 0.2
TELL_EVERY_S = 10.0

# What says that a file cannot be written, beside all the other things an OSError can be.
DISK_ERRORS = {
    errno.EACCES,
    errno.EDQUOT,
    errno.EEXIST,
    errno.ENAMETOOLONG,
    errno.ENOSPC,
    errno.ENOTDIR,
    errno.EPERM,
    errno.EROFS,
}


def state_directory() -> Path:
    """The user's state directory for Sunspot, or SUNSPOT_STATE_DIR."""
    chosen = os.environ.get(STATE_DIRECTORY_VARIABLE)
    return Path(chosen).absolute() if chosen else platformdirs.user_state_path("sunspot")


@dataclass(frozen=True)
class Folders:
    """The folders of one target's clusters, in `root`."""

    root: Path

    def names(self) -> list[str]:
        """The clusters that have a folder, sorted."""
        return sorted(path.name for path in self.root.glob("[!.]*/") if path.is_dir())

    def path(self, name: str) -> Path:
        """Where a cluster's files lie; it need not exist. Raises UsageError as `check_name`."""
        return self.root / check_name(name)

    @contextlib.contextmanager
    def locked(self, name: str, progress: Progress = silent) -> Iterator[None]:
        """Keeps other commands from working on the cluster; waits while one does.

        While it waits, `progress` is told for whom, and for how long that one has been at work.
        """
        path = self.path(name)
        lock = path.with_name(f".{name}.lock")
        with readable_disk_errors(self.root), contextlib.ExitStack() as held:
            _wait_for(lock, name, held, progress)
            lock.write_text(json.dumps({"pid": os.getpid(), "since": time.time()}))
            try:
                yield
            finally:
                # Where no cluster is, nothing of it stays; those who wait take a new lock.
                if path.exists():
                    lock.write_text("")
                else:
                    lock.unlink(missing_ok=True)


def _wait_for(lock: Path, name: str, held: contextlib.ExitStack, progress: Progress) -> None:
    tell_at = 0.0
    while True:
        try:
            held.enter_context(locked(lock, wait=False))
            return
        except BlockingIOError:
            if time.monotonic() >= tell_at:
                progress(f"waiting for {_holder(lock)} on {name} (Ctrl-C ends the waiting)")
                tell_at = time.monotonic() + TELL_EVERY_S
            time.sleep(LOCK_POLL_S)


def _holder(lock: Path) -> str:
    """Who holds the lock, as it wrote itself down: "process 4242, for 95 s at work"."""
    try:
        holder = json.loads(lock.read_text())
        return f"process {holder['pid']}, which has been at work for {_since(holder)} s"
    except (OSError, ValueError, KeyError, TypeError):
        return "another command, which is at work"


def _since(holder: dict[str, float]) -> str:
    return f"{max(0.0, time.time() - holder['since']):.0f}"


@contextlib.contextmanager
def readable_disk_errors(root: Path) -> Iterator[None]:
    """Turns an OSError into one message that names `root`, where the records lie."""
    try:
        yield
    except OSError as error:
        if error.errno not in DISK_ERRORS:
            raise SunspotError(str(error)) from error
        raise UsageError(
            f"cannot write the cluster's state in {root}: {error.strerror or error}. Make room or "
            f"set {STATE_DIRECTORY_VARIABLE} to a folder that you can write"
        ) from error


def broken(name: str, what: str, remedy: str) -> SunspotError:
    """The error for records that cannot be read, with what to do."""
    return SunspotError(f"the records of {name!r} are broken: {what}. {remedy}")
