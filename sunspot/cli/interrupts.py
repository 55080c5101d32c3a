"""How the command answers Ctrl-C, SIGTERM and a closed terminal, from its first moment to its last.

While it does its work, each raises KeyboardInterrupt. Before and after, nothing has to be undone:
each ends the process at once. This module is imported before all others and loads next to none.
"""

from __future__ import annotations

import atexit
import os
import signal
import sys

INTERRUPTED = 130
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def answer() -> None:
    """From now on, each of the signals ends the process with one line and INTERRUPTED.

    A signal that is ignored stays ignored: SIGHUP under nohup, SIGINT in a script's background.
    """
    for number in SIGNALS:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _leave)
    # What is registered first runs last. Then Python ends itself, where nothing must be raised.
    atexit.register(_ignore, SIGNALS)


class Raising:
    """Within the block, the signals that `answer` handles raise KeyboardInterrupt."""

    def __enter__(self) -> Raising:
        self._taken = [number for number in SIGNALS if signal.getsignal(number) is _leave]
        for number in self._taken:
            signal.signal(number, _raise)
        return self

    def finish(self) -> None:
        """Ignores the signals for the rest of the block, in which only a message is printed."""
        _ignore(self._taken)

    def __exit__(self, *_: object) -> None:
        for number in self._taken:
            signal.signal(number, _leave)


def _leave(_number: int, _frame: object) -> None:
    try:  # noqa: SIM105  (contextlib takes time to load)
        sys.stdout.flush()
    except (
        OSError,
        RuntimeError,
        ValueError,
    ):  # a closed pipe, or interrupted while it was written
        pass
    os.write(2, b"error: interrupted\n")  # not by rich, which may be half imported
    os._exit(INTERRUPTED)


def _raise(_number: int, _frame: object) -> None:
    raise KeyboardInterrupt


def _ignore(numbers: list[signal.Signals] | tuple[signal.Signals, ...]) -> None:
    for number in numbers:
        signal.signal(number, signal.SIG_IGN)
