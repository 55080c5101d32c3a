"""Signals: what must not be interrupted, and how."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator


@contextlib.contextmanager
def uninterrupted() -> Iterator[None]:
    """Keeps a second Ctrl-C or a SIGTERM from cutting a clean-up short.

    Signals arrive in the main thread; elsewhere there is nothing to keep away.
    """
    kept = (signal.SIGINT, signal.SIGTERM)
    try:
        before = [signal.signal(number, signal.SIG_IGN) for number in kept]
    except ValueError:  # not the main thread
        yield
        return
    try:
        yield
    finally:
        for number, handler in zip(kept, before, strict=True):
            signal.signal(number, handler)
