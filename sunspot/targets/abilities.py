"""Abilities that only some targets have: looked up here, never by a target's class or name."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, TypeVar

from sunspot.errors import UsageError
from sunspot.targets.contacting import Contacting
from sunspot.targets.forwarding import Forwarding
from sunspot.targets.protocol import (
    Batches,
    Manifests,
    NodeLogs,
    Outputs,
    Preconditions,
    Scaling,
    Shells,
    Target,
)

A = TypeVar("A")

Kind = Literal["node", "group"]

_WHAT: dict[type, str] = {
    Scaling: "scaling groups by hand",
    NodeLogs: "logs of single nodes",
    Shells: "a shell on the head",
    Forwarding: "reaching ports of the head",
    Outputs: "the outputs of a program",
    Preconditions: "checking what a stack needs",
    Contacting: "a first contact",
    Manifests: "printing what it is given",
    Batches: "a cluster for one command",
}


def unknown(stack: str, kind: Kind, wanted: str, known: Iterable[str]) -> UsageError:
    """The error for a node or a group that a stack does not have, the same on every target."""
    has = ", ".join(known) or "none"
    return UsageError(f"stack {stack!r} has no {kind} {wanted!r}; it has: {has}")


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
