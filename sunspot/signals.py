"""Signals: kept away from a clean-up, or passed on."""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
from collections.abc import Callable, Iterator


def uninterrupted() -> contextlib.AbstractContextManager[None]:
    """Ignores Ctrl-C, SIGTERM and a closed terminal, so that none cuts a clean-up short."""
    return _ignored(signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def without_hangups() -> contextlib.AbstractContextManager[None]:
    """Ignores that the terminal is closed."""
    return _ignored(signal.SIGHUP)


@contextlib.contextmanager
def _ignored(*numbers: signal.Signals) -> Iterator[None]:
    """Ignores these signals.

    Python handles signals in the main thread; in any other this does nothing.
    """
    try:
        before = [signal.signal(number, signal.SIG_IGN) for number in numbers]
    except ValueError:  # not the main thread
        yield
        return
    try:
        yield
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)


@contextlib.contextmanager
def terminating() -> Iterator[None]:
    """Makes a SIGTERM raise SystemExit in the block, where it would end the process at once.

    Another handler than Python's own stays. Python handles signals in the main thread; in any other
    this does nothing.
    """
    is_ours = threading.current_thread() is threading.main_thread()
    if not is_ours or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return
    signal.signal(signal.SIGTERM, _exit)
    try:
        yield
    finally:
        if signal.getsignal(signal.SIGTERM) is _exit:  # `ray.init` may have set its own
            signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _exit(number: int, _frame: object) -> None:
    sys.exit(128 + number)


@contextlib.contextmanager
def deferred() -> Iterator[None]:
    """Raises KeyboardInterrupt after the block, not in it, if Ctrl-C or SIGTERM came meanwhile.

    Also where the block fails: whoever interrupts it does not wait for its error.
    """
    received: list[None] = []
    try:
        with handed_over(lambda: received.append(None)):
            yield
    except Exception as error:
        if received:
            raise KeyboardInterrupt from error
        raise
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
