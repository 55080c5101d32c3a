"""What a cluster's record says, in short: notices, evictions of the last day, cost so far."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import Any

from rich.markup import escape

from sunspot import group_status
from sunspot.errors import SunspotError
from sunspot.node import ledger
from sunspot.node.events import Event
from sunspot.node.ledger import DAY_S, Spent
from sunspot.node.notices import Notice
from sunspot.targets import abilities
from sunspot.targets.history import History
from sunspot.targets.protocol import Costing, Target


@dataclass(frozen=True, kw_only=True)
class Summary:
    """What a cluster's record says.

    Attributes:
        events: what happened, in order.
        notices: what its head wants said now.
        evicted: the workers that were evicted in the last day, by group.
        spent: what its machines cost so far, by market; none where machines cost nothing.
        problem: why the record could not be read; None if it was, and then all else is empty.
    """

    events: Sequence[Event] = ()
    notices: Sequence[Notice] = ()
    evicted: Mapping[str, int] = field(default_factory=dict)
    spent: Mapping[str, Spent] = field(default_factory=dict)
    problem: str | None = None


def summary(target: Target, name: str) -> Summary | None:
    """What a cluster's record says; None where its target keeps none."""
    history, costing = abilities.find(target, History), abilities.find(target, Costing)
    if history is None:
        return None
    now = time.time()
    try:
        found = history.recorded(name)
        spent = {}
        if costing is not None:
            markets, prices = group_status.markets(target.stack(name)), costing.hourly_prices(name)
            spent = ledger.spent(ledger.lives(found.events), markets, prices, now)
        return Summary(
            events=found.events,
            notices=found.notices,
            evicted=ledger.evicted(found.events, since=now - DAY_S),
            spent=spent,
        )
    except SunspotError as error:
        return Summary(problem=str(error))


def lines(past: Summary) -> Iterator[str]:
    """What people should know of it, a line of rich markup each."""
    if past.problem:
        yield f"[yellow]its events and notices are unknown:[/] {escape(past.problem)}"
    for notice in past.notices:
        until = "" if notice.until is None else f" (until {_clock(notice.until)})"
        yield f"[yellow]notice:[/] {escape(notice.text)}{until}"
    if past.evicted:
        by_group = ", ".join(f"{count} of {group}" for group, count in past.evicted.items())
        yield f"evicted in the last day: {escape(by_group)}"
    if past.spent:
        yield _spent_line(past.spent)


def to_json(past: Summary | None) -> dict[str, Any]:
    """The summary as plain data, without the events; times in unix seconds."""
    found = past or Summary()
    return {
        "notices": [asdict(notice) for notice in found.notices],
        "evicted_last_day": dict(found.evicted),
        "cost_so_far": {market: asdict(spent) for market, spent in found.spent.items()},
        "record_problem": found.problem,
    }


def _spent_line(spent: Mapping[str, Spent]) -> str:
    total = sum(one.usd for one in spent.values())
    parts = [f"{market} {one.usd:.3f} ({one.hours:.1f} h)" for market, one in spent.items()]
    unknown = sorted({group for one in spent.values() for group in one.price_unknown})
    without = f", without {', '.join(unknown)}" if unknown else ""
    return (
        f"about {total:.3f} USD so far for machines: {', '.join(parts)}{escape(without)}, at the "
        "prices of now"
    )


def _clock(when: float) -> str:
    return datetime.fromtimestamp(when).astimezone().strftime("%H:%M")
