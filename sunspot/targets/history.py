"""What happened to a cluster's nodes, and what is so now: an ability of targets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol, runtime_checkable

from sunspot.node.events import Event
from sunspot.node.notices import Notice


@dataclass(frozen=True, kw_only=True)
class Recorded:
    """What is recorded of a cluster.

    Attributes:
        events: what happened since it was brought up, in order; where there are very many, those of
            days ago are added up.
        notices: what its head wants said now, the oldest first.
    """

    events: Sequence[Event] = ()
    notices: Sequence[Notice] = ()


@runtime_checkable
class History(Protocol):
    """A target keeps a record of what happens to a cluster's nodes."""

    def recorded(self, name: str) -> Recorded:
        """The record of a cluster; where it lies elsewhere, one question is asked there.

        Raises:
            NotUpError: the cluster is not up.
            SunspotError: the record cannot be read now.
        """
        ...


def line(event: Event) -> str:
    """An event for people, in local time."""
    when = datetime.fromtimestamp(event.time).astimezone().strftime("%Y-%m-%d %H:%M:%S")
    text = f"{when}  {event.kind:<9} {event.node or '-':<12} {event.group:<12} {event.reason}"
    return text.rstrip()
