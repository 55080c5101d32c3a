"""Who may connect to Ray Serve on a head from other machines, where a target can open it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable


@dataclass(frozen=True, kw_only=True)
class Callers:
    """The networks that Serve's port is open to.

    Attributes:
        address: the head's, as those networks reach it.
        sources: their address blocks.
    """

    address: str
    sources: tuple[str, ...]


@runtime_checkable
class Opens(Protocol):
    """A stack of this target can open Serve's port to networks that it names."""

    def callers(self, name: str) -> Callers | None:
        """Who may connect to Serve on a cluster that is up; None if only the head itself may."""
        ...
