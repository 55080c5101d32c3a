"""Bringing up a cluster that ends with whoever asked for it, and of no one else's."""

from __future__ import annotations

from sunspot.errors import UsageError
from sunspot.stack import Stack
from sunspot.targets.protocol import UP_TIMEOUT_S, Progress, Target, Up, WaitsForOthers


class Start:
    """The start of one cluster, and whether what is there afterwards is the caller's to take down.

    Args:
        target: where the cluster is brought up.
        stack: the stack, fitted to the target.
    """

    def __init__(self, target: Target, stack: Stack) -> None:
        self._target, self._stack = target, stack
        self._step = ""
        self._up: Up | None = None

    def up(self, progress: Progress, *, timeout_s: float = UP_TIMEOUT_S) -> Up:
        """Brings it up, as `Target.up` does."""

        def told(step: str) -> None:
            self._step = step
            progress(step)

        self._up = self._target.up(self._stack, told, timeout_s=timeout_s)
        return self._up

    def is_ours(self, error: BaseException) -> bool:
        """Whether there may be something of this cluster after `error`, and not of another's."""
        if self._up is not None:
            return not self._up.was_up
        # What is wrong with a stack is found before anything is created.
        return not isinstance(error, UsageError) and not isinstance(self._step, WaitsForOthers)
