"""Abilities that only some targets have: looked up here, never by a target's class or name."""

from __future__ import annotations

from typing import TypeVar

from sunspot.errors import UsageError
from sunspot.targets.protocol import NodeLogs, Outputs, Scaling, Shells, Target

A = TypeVar("A")

_WHAT: dict[type, str] = {
    Scaling: "scaling groups by hand",
    NodeLogs: "logs of single nodes",
    Shells: "a shell on the head",
    Outputs: "the outputs of a program",
}


def find(target: Target, ability: type[A]) -> A | None:
    """The target, if it has this ability; otherwise None."""
    return target if isinstance(target, ability) else None


def need(target: Target, ability: type[A]) -> A:
    """The target, if it has this ability.

    Raises:
        UsageError: it does not.
    """
    found = find(target, ability)
    if found is None:
        raise UsageError(f"target {target.name!r} does not support {_WHAT[ability]}")
    return found
