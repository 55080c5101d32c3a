"""Metrics of a cluster's record, for Prometheus: events, groups, cost so far."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from sunspot.node import ledger
from sunspot.node.azure.live import LiveSettings
from sunspot.node.azure.record import HeadRecord
from sunspot.node.collector import MARKET_LABEL
from sunspot.node.events import Event
from sunspot.node.notices import Notice

# What the teller's notices about a group begin with (teller.py).
GROUP_NOTICE = "group:"


class RecordCollector:
    """A metrics collector that reads the head's record at each scrape.

    Args:
        record: the record.
        settings: gives the settings of the cluster, its limits and prices.
        markets: gives the markets of node types that the autoscaler does not scale.
    """

    def __init__(
        self,
        record: HeadRecord,
        settings: Callable[[], LiveSettings],
        markets: Callable[[], Mapping[str, str]],
    ) -> None:
        self._record = record
        self._settings = settings
        self._markets = markets

    def collect(self) -> Iterator[Any]:
        """The metric families, for `prometheus_client`."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        settings, happened = self._settings(), self._record.events.read()
        events = CounterMetricFamily(
            "sunspot_events", "What happened to nodes and groups.", labels=["kind", "group"]
        )
        for labels, count in _counts(happened).items():
            events.add_metric(labels, count)
        cost = GaugeMetricFamily(
            "sunspot_cost_so_far_usd", "What the machines have cost.", labels=["market"]
        )
        hours = CounterMetricFamily(
            "sunspot_machine_hours", "Hours in which machines existed.", labels=["market"]
        )
        markets = {**self._markets(), **_markets(settings)}
        spent = ledger.spent(ledger.lives(happened), markets, settings.prices, time.time())
        for market, one in spent.items():
            cost.add_metric([market], one.usd)
            hours.add_metric([market], one.hours)
        yield from (events, cost, hours, *_limits(settings), *_held(self._record.notices.read()))


def _counts(events: Iterable[Event]) -> Counter[tuple[str, str]]:
    """How many events of each kind and group there were: it never shrinks."""
    counts: Counter[tuple[str, str]] = Counter()
    for event in events:
        for kind, count in (event.earlier or {event.kind: 1}).items():
            if kind != "hours":
                counts[kind, event.group] += int(count)
    return counts


def _limits(settings: LiveSettings) -> Iterator[Any]:
    """The least and the most workers of each node type that the autoscaler scales."""
    from prometheus_client.core import GaugeMetricFamily

    least = GaugeMetricFamily("sunspot_workers_min", "The least workers.", labels=["group"])
    most = GaugeMetricFamily("sunspot_workers_max", "The most workers.", labels=["group"])
    for name, kind in _workers(settings).items():
        least.add_metric([name], kind["min_workers"])
        most.add_metric([name], kind["max_workers"])
    yield from (least, most)


def _held(notices: list[Notice]) -> Iterator[Any]:
    """The groups that get no machines now: paused until they are changed, or refused for a time."""
    from prometheus_client.core import GaugeMetricFamily

    paused = GaugeMetricFamily("sunspot_group_paused", "1 while it is paused.", labels=["group"])
    refused = GaugeMetricFamily(
        "sunspot_group_refused_until_seconds",
        "Until when no machine is asked for, in unix seconds.",
        labels=["group"],
    )
    for notice in notices:
        if notice.about.startswith(GROUP_NOTICE):
            group = [notice.about.removeprefix(GROUP_NOTICE)]
            if notice.until is None:
                paused.add_metric(group, 1)
            else:
                refused.add_metric(group, notice.until)
    yield from (paused, refused)


def _markets(settings: LiveSettings) -> dict[str, str]:
    labels = {name: kind["labels"] for name, kind in _workers(settings).items()}
    return {name: of[MARKET_LABEL] for name, of in labels.items() if MARKET_LABEL in of}


def _workers(settings: LiveSettings) -> Mapping[str, Any]:
    """The autoscaler's node types, without the head's."""
    config = settings.autoscaler
    if config is None:
        return {}
    types = config["available_node_types"]
    return {name: kind for name, kind in types.items() if name != config["head_node_type"]}
