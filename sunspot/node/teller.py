"""Records what happens to a cluster's machines, and says what is so of its groups."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from sunspot.node.events import Event, EventRecord, Kind
from sunspot.node.notices import Notice, Notices

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Teller:
    """Writes events and notices; a full disk is not an error.

    Args:
        events: the record of what happened.
        notices: what is so now.
        clock: seconds since the epoch.
    """

    events: EventRecord
    notices: Notices
    clock: Callable[[], float] = time.time

    def tell(self, kind: Kind, group: str, node: str = "", reason: str = "") -> None:
        """Records an event."""
        self.events.add(Event(kind=kind, group=group, node=node, reason=reason, time=self.clock()))

    def refused(self, kind: str, group: str, reason: str, until: float, *, first: bool) -> None:
        """A kind of machines cannot be had until a time; `first` is not told of a repetition."""
        if first:
            self.tell("refused", kind, "", reason)
        with _harmless():
            text = f"{kind}: Azure gives no such machine now: {reason}"
            self.notices.put(Notice(about=about(group), text=text, since=self.clock(), until=until))

    def granted(self, group: str) -> None:
        """Machines of a group can be had."""
        with _harmless():
            self.notices.drop(about(group))

    def paused(self, group: str, reason: str) -> None:
        """A group gets no machines, until the cluster's settings change."""
        self.tell("paused", group, "", reason)
        text = (
            f"{group} is paused, and gets no machines: {reason}. Mend it and run `sunspot up`, or "
            f"try again as it is with `sunspot scale {group}=N`"
        )
        with _harmless():
            self.notices.put(Notice(about=about(group), text=text, since=self.clock()))

    def resumed(self, group: str, reason: str) -> None:
        """A group that was paused gets machines again."""
        self.tell("resumed", group, "", reason)
        self.granted(group)


def about(group: str) -> str:
    """What a notice about a group is about."""
    return f"group:{group}"


@contextlib.contextmanager
def _harmless() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        log.error("a notice is not kept: %s", error)
