"""A manifest of a cluster with what Ray Serve serves on it: an ability of targets."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from sunspot.stack import Stack


@runtime_checkable
class ServedManifests(Protocol):
    """What the target is given for a stack may say what Ray Serve serves, too."""

    def served_manifest(self, stack: Stack, source: str) -> str:
        """The text, which also works without Sunspot. Nothing is asked of the place itself.

        Args:
            stack: the stack, fitted to this target.
            source: a file in Serve's format (YAML or JSON), or MODULE:APP.

        Raises:
            UsageError: the stack or the config is wrong for this target.
        """
        ...
