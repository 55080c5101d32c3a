"""Bringing up a cluster that ends with whoever asked for it, and of no one else's."""

from __future__ import annotations

from sunspot.errors import UsageError
from sunspot.stack import Stack
from sunspot.targets import abilities
from sunspot.targets.for_caller import ForCaller
from sunspot.targets.protocol import (
    UP_TIMEOUT_S,
    Lasting,
    Progress,
    Removal,
    Target,
    Up,
    WaitsForOthers,
)


def take_down(target: Target, name: str, progress: Progress) -> Removal | None:
    """Takes down what was brought up here.

    What has no record here any more may be another machine's by now, and stays.
    """
    return _for_caller(target).down(name, progress) if name in target.names() else None


def _for_caller(target: Target) -> Target:
    differs = abilities.find(target, ForCaller)
    return target if differs is None else differs.for_caller()


class _LastingOfOthers(Lasting, WaitsForOthers):
    """Both."""

    __slots__ = ()


def of_others(step: str) -> WaitsForOthers:
    """The step as one in which nothing is done yet, and as lasting as it is."""
    return _LastingOfOthers(step) if isinstance(step, Lasting) else WaitsForOthers(step)


class Start:
    """The start of one cluster, and whether what is there afterwards is the caller's to take down.

    Args:
        target: where the cluster is brought up.
        stack: the stack, fitted to the target.
    """

    def __init__(self, target: Target, stack: Stack) -> None:
        self._target, self._stack = _for_caller(target), stack
        self._step = ""
        self._refused = False
        self._up: Up | None = None

    def up(self, progress: Progress, *, timeout_s: float = UP_TIMEOUT_S) -> Up:
        """Brings it up, as `Target.up` does."""

        def told(step: str) -> None:
            self._step = step
            progress(step)

        try:
            self._up = self._target.up(self._stack, told, timeout_s=timeout_s)
        except UsageError:  # before anything is created, or the target has taken it away
            self._refused = True
            raise
        return self._up

    @property
    def is_ours(self) -> bool:
        """Whether there may be something of this cluster now, and not of another's."""
        if self._up is not None:
            return not self._up.was_up
        return not self._refused and not isinstance(self._step, WaitsForOthers)
