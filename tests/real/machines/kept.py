"""What is made once and kept for the next run: its name, its making, and one maker at a time."""

import contextlib
import fcntl
import hashlib
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

from machines.processes import checked


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
            part = folder.with_name(f"{folder.name}-new-{os.getpid()}")
            try:
                make(part)
                part.rename(folder)
            finally:
                unmounted(part)  # what an interrupted step left
                shutil.rmtree(part, ignore_errors=True)
    return folder


def unmounted(folder: Path) -> None:
    """Takes away what is left mounted below a folder."""
    mounts = [line.split()[1] for line in Path("/proc/mounts").read_text().splitlines()]
    for mount in reversed([m for m in mounts if m.startswith(f"{folder}/")]):
        checked(["umount", "--lazy", mount])
