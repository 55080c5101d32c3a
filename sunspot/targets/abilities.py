"""What only some targets can do: asked for here, and nowhere by a target's class or name."""

from __future__ import annotations

from typing import TypeVar

from sunspot.errors import UsageError
from sunspot.targets.protocol import NodeLogs, Outputs, Scaling, Shells, Target

A = TypeVar("A")

_WHAT: dict[type, str] = {
    Scaling: "groups that are scaled by hand",
    NodeLogs: "logs of single nodes",
    Shells: "a head to log in to",
    Outputs: "outputs of a program",
}


def find(target: Target, ability: type[A]) -> A | None:
    """The target as one that has this ability, or None."""
    return target if isinstance(target, ability) else None


def need(target: Target, ability: type[A]) -> A:
    """The target as one that has this ability. Raises UsageError where it has not."""
    found = find(target, ability)
    if found is None:
        raise UsageError(f"target {target.name!r} does not have {_WHAT[ability]}")
    return found
