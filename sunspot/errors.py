"""The errors that Sunspot raises on purpose.

The command turns each into one message and its `exit_code`; none of them prints a traceback.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


class SunspotError(Exception):
    """Something failed, and not because of the caller's input. Exit code 1."""

    exit_code = 1


class UsageError(SunspotError, ValueError):
    """The input is wrong: a key, a value or a name. Nothing was created. Exit code 2."""

    exit_code = 2


class UntrustedError(UsageError):
    """A stack file or project above the working directory is another user's."""

    def __init__(self, message: str, folder: Path) -> None:
        super().__init__(message)
        self.folder = folder


class NotUpError(SunspotError):
    """The target has no cluster of that name."""


class HeadLostError(SunspotError):
    """The cluster's head died, and with it the cluster."""


class SuspendedError(NotUpError, UsageError):
    """The cluster is suspended, so it cannot do what was asked for."""
