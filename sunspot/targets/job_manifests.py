"""A manifest of a cluster for one job: an ability of targets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

from sunspot.stack import Stack


@runtime_checkable
class JobManifests(Protocol):
    """What the target is given for a stack may be a cluster for one command."""

    def job_manifest(
        self, stack: Stack, command: Sequence[str], environment: Mapping[str, Any] | None
    ) -> str:
        """The text, which also works without Sunspot. Nothing is asked of the place itself.

        Args:
            stack: the stack, fitted to this target.
            command: the command and its arguments.
            environment: Ray's runtime environment of the job.

        Raises:
            UsageError: the stack or the environment is wrong for this target.
        """
        ...
