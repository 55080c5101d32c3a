"""The certificates and the key of a kubeconfig, which Python's TLS takes from files only.

The package writes them into files of the folder for temporary files. There a process that is killed
leaves the key behind, and what cleans that folder breaks a process that runs for days.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
import threading
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kubernetes.client import Configuration

# The package keeps the files of all logins of a process together (37.0), and so its errors.
LOGGING_IN = threading.Lock()

_MEMORY = "/dev/shm"  # noqa: S108 - the folder in it is private
_FILES = ("ssl_ca_cert", "cert_file", "key_file")


@contextlib.contextmanager
def in_memory(made: Configuration) -> Iterator[str | None]:
    """Moves what the block writes for a login into this process's memory.

    Args:
        made: the configuration that the block fills; the files exist as long as it does.

    Yields:
        The folder for the files; None where the system has no files in memory (macOS), and the
        package keeps its own until the process ends.
    """
    if not hasattr(os, "memfd_create"):
        yield None
        return
    # For a moment they are files: in memory, too, so that no kill leaves a key on a disk.
    where = _MEMORY if os.access(_MEMORY, os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="sunspot-login-", dir=where) as folder:
        yield folder
        held = {
            key: _hold(made, Path(path))
            for key in _FILES
            if (path := getattr(made, key)) and Path(path).parent == Path(folder)
        }
    for key, path in held.items():
        setattr(made, key, path)
    if (renew := made.refresh_api_key_hook) is not None:

        def renewed(configuration: Configuration) -> None:
            # It also names the files of the folder again, and itself as the hook (37.0): in another
            # one, since threads may be reading this one.
            other = type(configuration)()
            with LOGGING_IN:
                renew(other)
            configuration.api_key |= other.api_key

        made.refresh_api_key_hook = renewed  # pyright: ignore[reportAttributeAccessIssue]


def _hold(made: Configuration, file: Path) -> str:
    """The path of a copy in memory, which goes with the configuration."""
    descriptor = os.memfd_create(file.name)
    weakref.finalize(made, os.close, descriptor)
    with open(descriptor, "wb", closefd=False) as copy:
        copy.write(file.read_bytes())
    return f"/proc/self/fd/{descriptor}"
