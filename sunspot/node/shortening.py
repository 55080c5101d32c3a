"""Keeps the record of a head that runs for months short, without changing what it adds up to."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable

from sunspot.node import ledger
from sunspot.node.events import Event, EventRecord
from sunspot.node.ledger import DAY_S

LARGEST_BYTES = 2 * 2**20
"""About 15,000 events. Each `sunspot status` reads them all from the head."""

KEPT_S = 2 * DAY_S
"""How long an event is kept in any case: `status` counts the evictions of one day."""


def shorten(record: EventRecord, now: float) -> None:
    """Adds up what is old in a record that has grown too large.

    Args:
        record: the record.
        now: in seconds since the epoch.

    Raises:
        OSError: the file cannot be read or written; it is as it was.
    """
    if record.size() > LARGEST_BYTES:
        record.rewrite(lambda events: shortened(events, now - KEPT_S))


def shortened(events: Iterable[Event], since: float) -> list[Event]:
    """The events without those of machines that were gone by then, which are one event a group.

    Args:
        events: the events, in order.
        since: what happened later stays as it is; in seconds since the epoch.
    """
    events = list(events)
    stays = {event.node for event in events if event.time >= since}
    stays |= {life.node for life in ledger.lives(events) if life.end is None}
    stays.discard("")
    old = [one for one in events if one.node not in stays and one.time < since]
    kept = [one for one in events if one.node in stays or one.time >= since]
    return [*_added_up(old), *kept]


def _added_up(events: list[Event]) -> list[Event]:
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    latest: dict[str, float] = {}
    for event in events:
        counts[event.group].update(event.earlier or {event.kind: 1})
        latest[event.group] = max(event.time, latest.get(event.group, 0.0))
    hours: dict[str, float] = defaultdict(float)
    for life in ledger.lives(events):
        hours[life.group] += life.hours(latest[life.group])
    return [
        Event(
            kind="earlier",
            group=group,
            reason=f"what was before is added up: machines of {hours[group]:.1f} h",
            time=latest[group],
            earlier={**counts[group], "hours": hours[group]},
        )
        for group in counts
    ]
