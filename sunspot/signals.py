"""Signals: kept away from a clean-up, or passed on."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Callable, Iterator


@contextlib.contextmanager
def uninterrupted() -> Iterator[None]:
    """Ignores Ctrl-C and SIGTERM, so that neither cuts a clean-up short.

    Python handles signals in the main thread; in any other this does nothing.
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
def without_hangups() -> Iterator[None]:
    """Ignores that the terminal is closed.

    Python handles signals in the main thread; in any other this does nothing.
    """
    try:
        before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    except ValueError:  # not the main thread
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGHUP, before)


@contextlib.contextmanager
def deferred() -> Iterator[None]:
    """Raises KeyboardInterrupt after the block, not in it, if Ctrl-C or SIGTERM came meanwhile."""
    received: list[None] = []
    with handed_over(lambda: received.append(None)):
        yield
    if received:
        raise KeyboardInterrupt


@contextlib.contextmanager
def handed_over(received: Callable[[], None]) -> Iterator[None]:
    """Calls `received` for each Ctrl-C, SIGTERM and hang-up, instead of the previous handlers.

    Python handles signals in the main thread; in any other this does nothing.
    """
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.getsignal(number) for number in numbers}
    # An ignored signal stays ignored: under nohup a hang-up ends nothing.
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
