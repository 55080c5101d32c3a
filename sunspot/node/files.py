"""Files that several processes share: locks, and writes that are whole or not at all."""

from __future__ import annotations

import contextlib
import fcntl
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO


@contextlib.contextmanager
def locked(path: Path, *, wait: bool = True) -> Iterator[None]:
    """Holds the lock that `path` stands for; the kernel lets it go when the holder dies.

    The holder may remove the file: whoever waited for it takes a new one.

    Raises:
        BlockingIOError: another process holds it and `wait` is False.
    """
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    while True:
        with path.open("a") as file:  # what its holder wrote into it stays
            fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
            if _is_at(file, path):
                yield
                return


def _is_at(file: TextIO, path: Path) -> bool:
    with contextlib.suppress(FileNotFoundError):
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    return False


def write_private(path: Path, text: str) -> None:
    """Writes a file that only its owner can read, whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    # mkstemp gives each thread a name of its own, and mode 0600.
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "w") as file:
            file.write(text)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
