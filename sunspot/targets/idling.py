"""Keeping a cluster that has a policy for when it is idle. An ability of targets."""

from __future__ import annotations

import re
from typing import Protocol, runtime_checkable

from sunspot.errors import UsageError
from sunspot.idle import KEY, WEEK_MINUTES
from sunspot.stack import Stack

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_PART = re.compile(r"(\d+(?:\.\d+)?)([smhd])")
_DURATION = re.compile(rf"({_PART.pattern})+|0")
MOST_S = WEEK_MINUTES * 60


@runtime_checkable
class Idling(Protocol):
    """What looks after idle clusters can be told to wait."""

    def keep_alive(self, name: str, seconds: float) -> float:
        """Keeps a cluster for so long, idle or not; 0 seconds end that.

        Returns:
            When it ends, in seconds since the epoch.

        Raises:
            UsageError: the cluster has no policy for when it is idle.
            NotUpError: there is no such cluster.
        """
        ...


def no_policy(stack: Stack) -> UsageError:
    """The error for a cluster that nothing is done to when it is idle."""
    return UsageError(
        f"nothing is done to {stack.name!r} when it is idle, so there is nothing to postpone: its "
        f"stack has no {KEY}"
    )


def duration(text: str) -> float:
    """The seconds of a text such as "2h", "90m" or "1h30m".

    Raises:
        UsageError: it is of another form, or more than a week.
    """
    if not _DURATION.fullmatch(text):
        raise UsageError(
            f"{text!r} is not a duration: write a number with s, m, h or d, for instance 2h or "
            "1h30m; 0 ends what was said before"
        )
    seconds = sum(float(number) * _UNITS[unit] for number, unit in _PART.findall(text))
    if seconds > MOST_S:
        raise UsageError(f"{text!r} is more than a week: give at most {MOST_S // 86_400}d")
    return seconds
