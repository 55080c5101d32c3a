"""What a target's own part of a stack file is built on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar, Self

from sunspot.spec import Config

if TYPE_CHECKING:
    from sunspot.stack import Stack


class Settings(Config, frozen=True):
    """A target's settings. Two targets may read the same key of a stack file.

    Attributes:
        KEYS: the keys of a stack file, each with the field that it fills.
    """

    KEYS: ClassVar[Mapping[str, str]] = {}

    @classmethod
    def of(cls, stack: Stack) -> Self:
        """What a stack says to this target; the defaults where it says nothing."""
        return next((one for one in stack.settings.values() if type(one) is cls), cls())
