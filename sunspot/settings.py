"""The base class of a target's own part of a stack file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Protocol, Self

from sunspot.spec_values import Config


class Settings(Config, frozen=True):
    """A target's settings. Two targets may read the same key of a stack file.

    Attributes:
        KEYS: the keys of the stack file, each with the field that it fills.
    """

    KEYS: ClassVar[Mapping[str, str]] = {}

    @classmethod
    def of(cls, stack: _HasSettings) -> Self:
        """A stack's settings for this target, with defaults for what it does not set."""
        return next((one for one in stack.settings.values() if type(one) is cls), cls())


class _HasSettings(Protocol):
    """The part of a `Stack` that `Settings.of` reads."""

    @property
    def settings(self) -> Mapping[str, Settings]: ...
