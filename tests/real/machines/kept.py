"""What is made once and kept for the next run: its name, its making, and one maker at a time."""

import contextlib
import fcntl
import hashlib
import os
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from machines.processes import checked

# In the name of what is being made.
_NEW = "-new-"


def key(*parts: object) -> str:
    """Twelve digits that change with every part."""
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:12]


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """One process at a time uses, or makes, what is kept in a folder; others wait."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with (folder.parent / f"{folder.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def kept(folder: Path, make: Callable[[Path], None]) -> Path:
    """The folder, which `make` makes under another name where it is not there yet."""
    with locked(folder):
        if not folder.exists():
            part = folder.with_name(f"{folder.name}{_NEW}{os.getpid()}")
            try:
                make(part)
                part.rename(folder)
            finally:
                unmounted(part)  # what an interrupted step left
                shutil.rmtree(part, ignore_errors=True)
    return folder


def remove_others(folder: Path, pattern: str, unused_s: float) -> None:
    """Removes what is kept beside a folder for another recipe, or was left while it was made.

    What somebody uses stays, and so does what was used lately: another branch may have that recipe.

    Args:
        folder: what stays.
        pattern: the names of what goes.
        unused_s: for how many seconds nobody may have used it.
    """
    for other in folder.parent.glob(pattern):
        lock = other.with_name(f"{other.name.partition(_NEW)[0]}.lock")
        used = lock if lock.exists() else other
        lately = time.time() - used.stat().st_mtime < unused_s
        if not other.is_dir() or other == folder or lately:
            continue
        with lock.open("a") as held, contextlib.suppress(BlockingIOError):
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            unmounted(other)
            shutil.rmtree(other)


def unmounted(folder: Path) -> None:
    """Takes away what is left mounted below a folder."""
    mounts = [line.split()[1] for line in Path("/proc/mounts").read_text().splitlines()]
    for mount in reversed([m for m in mounts if m.startswith(f"{folder}/")]):
        checked(["umount", "--lazy", mount])
