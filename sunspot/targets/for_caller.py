"""Clusters that end with whoever asked for them, where a target treats them in another way."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from sunspot.targets.protocol import Target


@runtime_checkable
class ForCaller(Protocol):
    """The target brings a cluster up, or takes it down, differently if it ends with its caller."""

    def for_caller(self) -> Target:
        """The same target, whose clusters end with the block or the command that asked for them.

        Its `up` refuses a cluster that is up, before it changes anything, even where one from
        another machine would be updated otherwise. Its `down` outlasts a server that is away for
        a while: nobody may be there to try again.
        """
        ...
