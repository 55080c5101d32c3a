"""Scaling by hand, without a restart. An ability of targets."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from sunspot.errors import UsageError
from sunspot.targets.protocol import Progress

# Nine digits are more workers than any cluster has, and no number that Python cannot read.
_CHANGE = re.compile(r"(?P<group>[^=]+)=(?P<minimum>[0-9]{1,9})(:(?P<maximum>[0-9]{1,9}))?")


@dataclass(frozen=True, kw_only=True)
class Size:
    """How many workers a group is to have: a number, or a range for the autoscaler.

    Attributes:
        minimum: the number, or the least.
        maximum: the most; None if this is a number.
    """

    minimum: int
    maximum: int | None = None

    @property
    def highest(self) -> int:
        """The most workers that the group has by this size."""
        return self.minimum if self.maximum is None else self.maximum

    def nearest(self, running: int) -> int:
        """The number within this size that is nearest to the workers that run."""
        return min(max(running, self.minimum), self.highest)

    def __str__(self) -> str:
        """The size as a user gives it: "2" or "1:4"."""
        return f"{self.minimum}" if self.maximum is None else f"{self.minimum}:{self.maximum}"


@runtime_checkable
class Scaling(Protocol):
    """The number of a group's workers can be set by hand."""

    def scale(self, name: str, sizes: Mapping[str, Size], progress: Progress) -> None:
        """Starts workers of each group, or drains and stops some, until its size is right.

        It returns when the workers are members. Where an autoscaler runs, a range becomes its
        limits for the group, and a number its minimum. Elsewhere nobody changes the number later.

        Raises:
            UsageError: there is no such group, or it cannot have the size; nothing has changed.
        """
        ...

    def sizes(self, name: str) -> Mapping[str, Size]:
        """The size at which each group is kept now: a range where an autoscaler runs.

        It leaves out the groups whose size only the stack file sets.
        """
        ...


def least(sizes: Mapping[str, Size]) -> dict[str, int]:
    """The minimum of each group."""
    return {group: size.minimum for group, size in sizes.items()}


def parse(changes: Sequence[str]) -> dict[str, Size]:
    """The size of each group, from texts such as "workers=2" and "gpu=1:4".

    Raises:
        UsageError: one is of another form, has its minimum above its maximum, or names a group
            that another one names too.
    """
    sizes: dict[str, Size] = {}
    for change in changes:
        group, size = _parse(change)
        if group in sizes:
            raise UsageError(f"group {group!r} is given twice, {sizes[group]} and {size}: give one")
        sizes[group] = size
    return sizes


def _parse(change: str) -> tuple[str, Size]:
    found = _CHANGE.fullmatch(change)
    if found is None:
        raise UsageError(
            f"{change!r} is not of the form GROUP=N or GROUP=MIN:MAX, for instance workers=2 or "
            "workers=1:4"
        )
    group, least, most = found["group"], int(found["minimum"]), found["maximum"]
    if most is not None and least > int(most):
        raise UsageError(
            f"{change!r}: the minimum {least} is above the maximum {most}; the smaller number "
            f"comes first: {group}={most}:{least}"
        )
    return group, Size(minimum=least, maximum=None if most is None else int(most))
