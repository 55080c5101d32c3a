"""How long a cluster's machines have existed, and what that cost, from its events."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from sunspot.node.events import ENDS, Event

DAY_S = 86_400.0
HOUR_S = 3_600.0


@dataclass(frozen=True, kw_only=True)
class Life:
    """The time in which a machine existed, in seconds since the epoch; no end while it does."""

    node: str
    group: str
    begin: float
    end: float | None = None

    def hours(self, now: float) -> float:
        """How long it has existed by now."""
        return max(0.0, (now if self.end is None else self.end) - self.begin) / HOUR_S


@dataclass(frozen=True, kw_only=True)
class Spent:
    """What machines of one market have cost so far.

    Attributes:
        hours: the machines' hours, those without a known price among them.
        usd: what the others cost, in US dollars.
        price_unknown: the groups, or node types, without a price.
    """

    hours: float = 0.0
    usd: float = 0.0
    price_unknown: tuple[str, ...] = ()


def lives(events: Iterable[Event]) -> list[Life]:
    """The machines of the events, in the order in which they came.

    A machine begins where it was launched, or joined if its launch is not known. Of several ends
    the last one counts: one that is evicted has its notice first. One that joins again after it was
    evicted or lost, as after an eviction that was called off, was there all the time; after it was
    drained it has a new life, as a head has that was off. What is added up is one life.
    """
    found: list[Life] = []
    latest: dict[str, int] = {}  # where the last life of each node is in `found`
    drained: set[str] = set()
    for event in events:
        at = latest.get(event.node)
        if event.kind == "earlier":
            begin = event.time - event.earlier.get("hours", 0.0) * HOUR_S
            found.append(Life(node="", group=event.group, begin=begin, end=event.time))
        elif event.kind in {"launched", "joined"}:
            if at is None or event.node in drained:
                latest[event.node] = len(found)
                drained.discard(event.node)
                found.append(Life(node=event.node, group=event.group, begin=event.time))
            else:
                found[at] = replace(found[at], end=None)
        elif event.kind in ENDS and at is not None:
            found[at] = replace(found[at], end=event.time)
            if event.kind in {"drained", "gave-up"}:
                drained.add(event.node)
    return found


def spent(
    lived: Iterable[Life], markets: Mapping[str, str], prices: Mapping[str, float], now: float
) -> dict[str, Spent]:
    """What machines have cost by now, by market.

    Args:
        lived: the machines.
        markets: the market of each group, or node type; one that is not in it is on demand, which
            is never too little.
        prices: USD an hour of each group, or node type; all of a machine's time costs what it does
            now.
        now: in seconds since the epoch.
    """
    hours: dict[str, float] = defaultdict(float)
    usd: dict[str, float] = defaultdict(float)
    unknown: dict[str, set[str]] = defaultdict(set)
    for life in lived:
        market, took = markets.get(life.group, "on-demand"), life.hours(now)
        hours[market] += took
        if life.group in prices:
            usd[market] += took * prices[life.group]
        else:
            unknown[market].add(life.group)
    return {
        market: Spent(
            hours=hours[market], usd=usd[market], price_unknown=tuple(sorted(unknown[market]))
        )
        for market in sorted(hours, reverse=True)  # spot first
    }


def evicted(events: Sequence[Event], since: float) -> dict[str, int]:
    """How many machines of each group, or node type, have been evicted since then."""
    nodes: dict[str, set[str]] = defaultdict(set)
    for event in events:
        if event.kind == "evicted" and event.time >= since:
            nodes[event.group].add(event.node)
    return {group: len(names) for group, names in nodes.items()}
