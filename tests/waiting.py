"""Waiting for what another thread or process does."""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

DEADLINE_S = 10.0


def until(condition: Callable[[], T], seconds: float = DEADLINE_S) -> T:
    """The first answer that is true; fails at the deadline."""
    deadline = time.monotonic() + seconds
    while not (answer := condition()):
        assert time.monotonic() < deadline, "timed out"
        time.sleep(0.01)
    return answer
