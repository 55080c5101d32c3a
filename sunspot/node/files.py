"""Files that several processes share: locks, and atomic writes."""

from __future__ import annotations

import contextlib
import fcntl
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def locked(path: Path, *, wait: bool = True) -> Iterator[None]:
    """Holds the lock of the file `path`; the kernel releases it when the holder dies.

    The holder may remove the file: a process that waits for the lock then creates a new file.

    Raises:
        BlockingIOError: another process holds the lock, and `wait` is False.
    """
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    while True:
        with path.open("a") as file:  # keeps what the holder wrote into it
            fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
            if is_at(file.fileno(), path):
                yield
                return


def is_at(file: int, path: Path) -> bool:
    """Whether an open file, by its descriptor, is still the one at a path."""
    with contextlib.suppress(FileNotFoundError):
        return os.path.samestat(os.fstat(file), path.stat())
    return False


def write_private(path: Path, text: str) -> None:
    """Writes a file atomically, readable only by its owner."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    # mkstemp gives each thread a separate name, and mode 0600.
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "w") as file:
            file.write(text)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
