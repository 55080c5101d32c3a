"""Waiting for what another thread, process or machine does: the one place where tests do so."""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

# Generous: the machine may be busy.
DEADLINE_S = 240.0
POLL_S = 0.05
# Asking must not take the processors from what is waited for: after a look that took long, such as
# a whole command, the next one waits so many times as long, but no longer than this.
REST, LONGEST_REST_S = 4.0, 2.0


def wait_for(
    what: str,
    answer: Callable[[], T | None],
    deadline_s: float = DEADLINE_S,
    *,
    poll_s: float = POLL_S,
    not_yet: tuple[type[Exception], ...] = (),
    seen: Callable[[], str] | None = None,
) -> T:
    """The first answer that is true.

    Args:
        what: Names what is waited for, in the message at the deadline.
        answer: Asked until its answer is true. What it raises ends the waiting, so a process that
            ended need not be waited for.
        deadline_s: Seconds until the waiting fails.
        poll_s: Seconds between two answers, at least.
        not_yet: Exceptions of `answer` that only mean that it is not so yet.
        seen: Told at the deadline beside the last answer, such as the end of a log.

    Raises:
        AssertionError: At the deadline; it names `what` and shows the last answer.
    """
    deadline = time.monotonic() + deadline_s
    while True:
        last: object
        asked = time.monotonic()
        try:
            last = got = answer()
            if got:
                return got
        except not_yet as error:
            last = error
        now = time.monotonic()
        if now > deadline:
            told = "" if seen is None else f"\n{seen()}"
            raise AssertionError(f"waited {deadline_s:g} s for {what}; last: {last!r}{told}")
        time.sleep(max(poll_s, min(REST * (now - asked), LONGEST_REST_S)))
