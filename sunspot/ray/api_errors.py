"""The errors of Ray's job API, and what they mean."""

from __future__ import annotations

import errno
import os
import re

from sunspot.errors import SunspotError
from sunspot.ray.handle import ClusterHandle

_FULL = os.strerror(errno.ENOSPC)


class SilentError(SunspotError):
    """The API did not answer: refused, cut off or timed out; or another server answered."""

    def __init__(self, handle: ClusterHandle, cause: Exception) -> None:
        self.reason = type(cause).__name__
        super().__init__(
            f"the job API of {handle.name!r} at {handle.job_address} does not answer "
            f"({self.reason}). To see what is wrong: sunspot status {handle.name}"
        )


class TokenError(SunspotError):
    """The API refuses the token."""


class RefusedError(SunspotError):
    """The API answered with an error; `status` is HTTP's."""

    def __init__(self, status: int, reason: str) -> None:
        self.status, self.reason = status, reason
        super().__init__(reason)


class NotFoundError(RefusedError):
    """The API does not know what was asked for (HTTP 404)."""


def check(status: int, text: str, handle: ClusterHandle) -> None:
    """Raises what an HTTP status of 400 or more means; `text` is the answer's body."""
    if status < 400:
        return
    if status in {401, 403}:
        raise TokenError(
            f"{handle.job_address} refuses the token in {handle.token_path} (HTTP {status}); "
            f"another cluster may have taken this address"
        )
    if status == 404:
        raise NotFoundError(status, text)
    # Ray answers with a traceback, which ends with the exception's class and message.
    raised = re.split(r"^(?=[\w.]*(?:Error|Exception)\b)", text.strip(), flags=re.MULTILINE)[-1]
    reason = " ".join(raised.split()) or f"HTTP {status}"
    if _FULL in reason:
        reason = (
            "the head's disk is full where Ray has its temporary folder, below /tmp: free some "
            f"space there (Ray says: {reason.rstrip(' .')})"
        )
    raise RefusedError(status, reason)


def passing(error: SunspotError) -> str | None:
    """Why a later try may succeed although this one failed; None if it will not.

    A head that restarts does not answer at first. Then its dashboard answers with 500 until it
    finds the GCS and an agent ("No available agent", Ray 2.60).
    """
    if isinstance(error, SilentError) or (isinstance(error, RefusedError) and error.status >= 500):
        return error.reason
    return None
