"""An API server that does not answer for a while: while AKS upgrades it, or many ask at once."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import TypeVar

from sunspot.targets.kubernetes.errors import ApiError, UnreachableError
from sunspot.targets.protocol import Progress

Answer = TypeVar("Answer")

PATIENCE_S = 120.0
POLL_S = 2.0
# One request that fails takes less, with all its tries (api.py): what took longer had answers.
AT_WORK_S = 120.0


def outlast(ask: Callable[[], Answer], progress: Progress) -> Answer:
    """Asks until there is an answer, so that a wait does not end with the server's.

    Args:
        ask: what asks; it may be called again.
        progress: is told that the server does not answer.

    Raises:
        UnreachableError: it did not for PATIENCE_S.
        ApiError: the same, or it refused the request for another reason.
    """
    away_since = math.inf
    while True:
        began = time.monotonic()
        try:
            return ask()
        except (UnreachableError, ApiError) as error:
            failed = time.monotonic()
            if failed - began > AT_WORK_S and isinstance(error, UnreachableError):
                away_since = failed
            away_since = min(away_since, failed)
            if not error.may_pass or failed - away_since > PATIENCE_S:
                raise
            progress(f"trying again: {error}")
        time.sleep(POLL_S)
