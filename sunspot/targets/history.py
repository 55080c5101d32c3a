"""What happened to a cluster's nodes: an ability of targets."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Protocol, runtime_checkable

from sunspot.node.events import Event


@runtime_checkable
class History(Protocol):
    """A target keeps a record of what happens to a cluster's nodes."""

    def events(self, name: str) -> Sequence[Event]:
        """The events of a cluster since it was brought up; earlier ones never change.

        Raises:
            NotUpError: the cluster is not up.
        """
        ...


def line(event: Event) -> str:
    """An event for people, in local time."""
    when = datetime.fromtimestamp(event.time).astimezone().strftime("%Y-%m-%d %H:%M:%S")
    text = f"{when}  {event.kind:<9} {event.node or '-':<12} {event.group:<12} {event.reason}"
    return text.rstrip()
