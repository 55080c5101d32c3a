"""Signals: what must not be interrupted, and how."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Callable, Iterator


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


@contextlib.contextmanager
def handed_over(received: Callable[[], None]) -> Iterator[None]:
    """Calls `received` for each Ctrl-C, SIGTERM and hang-up, in place of what they did before.

    Signals arrive in the main thread; elsewhere there is nothing to hand over.
    """
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.getsignal(number) for number in numbers}
    # What is ignored stays so: under nohup a hang-up ends nothing.
    taken = [number for number in numbers if before[number] is not signal.SIG_IGN]
    try:
        for number in taken:
            signal.signal(number, lambda *_: received())
    except ValueError:  # not the main thread
        yield
        return
    try:
        yield
    finally:
        for number in taken:
            signal.signal(number, before[number])
