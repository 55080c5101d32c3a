"""The records of clusters on this machine: one folder per cluster, and a lock file beside it.

<state directory>/<target's folder>/NAME/       a cluster's files
<state directory>/<target's folder>/.NAME.lock  locked while a command works on the cluster
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import shutil
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import platformdirs
from pydantic import ValidationError

from sunspot.errors import NotUpError, SunspotError, UsageError
from sunspot.node.files import locked, write_private
from sunspot.stack import check_name
from sunspot.targets.protocol import Progress, WaitsForOthers, silent

STATE_DIRECTORY_VARIABLE = "SUNSPOT_STATE_DIR"

LOCK_POLL_S = 0.2
REPEAT_NOTE_S = 10.0

# The errors of an OSError that mean that a file cannot be written.
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


class BrokenRecordsError(SunspotError):
    """The records of a cluster cannot be read."""


def state_directory() -> Path:
    """The user's state directory for Sunspot, or SUNSPOT_STATE_DIR."""
    chosen = os.environ.get(STATE_DIRECTORY_VARIABLE)
    return Path(chosen).absolute() if chosen else platformdirs.user_state_path("sunspot")


@dataclass(frozen=True)
class Folders:
    """The folders of one target's clusters.

    Attributes:
        root: the folder that they are in.
        remedy: what the error for a broken record advises, with `{name}` for the stack's name.
    """

    root: Path
    remedy: str = "Take the cluster down and start again: sunspot down {name} && sunspot up {name}"

    def names(self) -> list[str]:
        """The clusters that have a folder, sorted."""
        return sorted(path.name for path in self.root.glob("[!.]*/") if path.is_dir())

    def path(self, name: str) -> Path:
        """The folder of a cluster, which need not exist.

        Raises:
            UsageError: as `check_name` does.
        """
        return self.root / check_name(name)

    def write(self, name: str, file: str, record: Mapping[str, Any]) -> None:
        """Writes or replaces a JSON file in a cluster's folder."""
        self._make_root()
        write_private(self.path(name) / file, json.dumps(record))

    def _make_root(self) -> None:
        """Only the last folder of a path gets a mode; in these, others would see the names."""
        for folder in (self.root.parent, self.root):
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)

    def read(self, name: str, file: str) -> dict[str, Any] | None:
        """The JSON object in a file of a cluster's folder; None if there is no such file.

        Raises:
            BrokenRecordsError: the file cannot be read, or is not a JSON object.
        """
        path = self.path(name) / file
        try:
            record = json.loads(path.read_text())
            if not isinstance(record, dict):
                raise ValueError("not a JSON object")
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            raise self.broken(name, path, error) from error
        return record

    def remove(self, name: str) -> None:
        """Removes a cluster's folder."""
        shutil.rmtree(self.path(name), ignore_errors=True)

    def broken(self, name: str, file: Path, error: Exception) -> BrokenRecordsError:
        """The error for a record in `file` that cannot be used."""
        why = " ".join(str(error).split())
        if isinstance(error, ValidationError):  # its own text is long, and links to a manual
            why = "its form is that of another version of Sunspot"
        what = f"{file} cannot be read ({why})"
        return broken(name, what, self.remedy.format(name=name))

    @contextlib.contextmanager
    def locked(self, name: str, progress: Progress = silent) -> Iterator[None]:
        """Locks the cluster against other commands; waits while another holds the lock.

        Args:
            name: the stack's name.
            progress: called while it waits, with the holder's process and how long it has held it.

        Raises:
            UsageError: the state directory cannot be written.
        """
        path = self.path(name)
        lock = path.with_name(f".{name}.lock")
        with readable_disk_errors(self.root), contextlib.ExitStack() as held:
            with contextlib.suppress(OSError):  # raised again below, with the file's name
                self._make_root()
            _wait_for(lock, name, held, progress)
            with contextlib.suppress(OSError):  # only a note: a full disk must not stop `down`
                lock.write_text(json.dumps({"pid": os.getpid(), "since": time.time()}))
            try:
                yield
            finally:
                # No lock file outlives its cluster; a command that waits creates a new one.
                if path.exists():
                    lock.write_text("")
                else:
                    lock.unlink(missing_ok=True)


def _wait_for(lock: Path, name: str, held: contextlib.ExitStack, progress: Progress) -> None:
    note_at = 0.0
    while True:
        try:
            held.enter_context(locked(lock, wait=False))
            return
        except BlockingIOError:
            if time.monotonic() >= note_at:
                held_by = _holder(lock, name)
                progress(WaitsForOthers(f"waiting for {held_by} (Ctrl-C stops the wait)"))
                note_at = time.monotonic() + REPEAT_NOTE_S
            time.sleep(LOCK_POLL_S)


def _holder(lock: Path, name: str) -> str:
    """The lock's holder, from the lock file: "process 7, which has been working on dev for 9 s"."""
    try:
        holder = json.loads(lock.read_text())
        return f"process {holder['pid']}, which has been working on {name} for {_since(holder)} s"
    except (OSError, ValueError, KeyError, TypeError):
        return f"another command, which is working on {name}"


def _since(holder: dict[str, float]) -> str:
    return f"{max(0.0, time.time() - holder['since']):.0f}"


@contextlib.contextmanager
def readable_disk_errors(root: Path) -> Iterator[None]:
    """Turns an OSError into one message that names `root`, the folder of the records.

    Raises:
        UsageError: a file in `root` cannot be written.
        SunspotError: any other OSError.
    """
    try:
        yield
    except OSError as error:
        about_us = error.filename is None or Path(str(error.filename)).is_relative_to(root)
        if error.errno not in DISK_ERRORS or not about_us:
            raise SunspotError(str(error)) from error
        raise UsageError(
            f"cannot write the cluster's state in {root}: {error.strerror or error}. Free some "
            f"space, or set {STATE_DIRECTORY_VARIABLE} to a folder that you can write"
        ) from error


def not_up(name: str) -> NotUpError:
    """The error for a cluster that does not exist."""
    return NotUpError(f"stack {name!r} is not up; start it with: sunspot up {name}")


def broken(name: str, what: str, remedy: str) -> BrokenRecordsError:
    """The error for records that cannot be read.

    Args:
        name: the stack's name.
        what: what is wrong, a clause without a full stop.
        remedy: what to do, a sentence.
    """
    return BrokenRecordsError(f"the records of {name!r} are broken: {what}. {remedy}")
