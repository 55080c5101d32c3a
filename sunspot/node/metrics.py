"""Metrics of a cluster's evictions, for Prometheus.

A worker that is evicted is gone before Prometheus could scrape it. So each node writes an event log
in the cluster's GCS, and only the head has an endpoint, which counts the log's entries.
"""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

from sunspot.node import gcs

NAMESPACE = b"sunspot_evictions"
RPC_TIMEOUT_S = 2.0

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Entry:
    """An entry of the event log: one notice that one node got.

    Attributes:
        node: the node's name in Ray.
        group: the node's group, or its node type.
        event: the id of Azure's scheduled event.
        type: the event's type, Preempt or Reboot for instance.
        noticed_at: when the node saw the event, in seconds since the epoch.
        notice_s: the seconds of notice; None if the event gave no time.
        outcome: "noticed" until the node has left, and always for a Freeze; then "idle" if its
            work had ended in time, "deadline" if it was stopped with work on it.
        drain_s: the seconds from the notice until the node had left the cluster; None before.
    """

    node: str
    group: str
    event: str
    type: str
    noticed_at: float
    notice_s: float | None
    outcome: str = "noticed"
    drain_s: float | None = None


class EventLog:
    """The event log of the cluster whose GCS is at HOST:PORT. Every method raises Ray's errors."""

    def __init__(self, address: str) -> None:
        self._address = address

    def write(self, entry: Entry) -> None:
        """Adds an entry, or replaces the one of the same node and event."""
        key, value = f"{entry.node}/{entry.event}", json.dumps(asdict(entry))
        gcs.connect(self._address).internal_kv_put(
            key.encode(), value.encode(), True, NAMESPACE, timeout=RPC_TIMEOUT_S
        )

    def read(self) -> list[Entry]:
        """Every entry that can be read."""
        client = gcs.connect(self._address)
        keys = client.internal_kv_keys(b"", NAMESPACE, timeout=RPC_TIMEOUT_S)
        values = client.internal_kv_multi_get(keys, NAMESPACE, timeout=RPC_TIMEOUT_S)
        return list(_entries(values.values()))


class EvictionCollector:
    """A metrics collector that reads the event log at each scrape."""

    def __init__(self, event_log: EventLog) -> None:
        self._event_log = event_log

    def collect(self) -> Iterator[Any]:
        """The metric families, for `prometheus_client`."""
        from prometheus_client.core import GaugeMetricFamily

        name, text = "sunspot_eviction_log_up", "1 if the event log could be read."
        try:
            entries = self._event_log.read()
        except Exception as error:  # Ray's errors have no common class; the endpoint lives on
            log.warning("the event log cannot be read: %s", error)
            yield GaugeMetricFamily(name, text, 0)
            return
        yield GaugeMetricFamily(name, text, 1)
        yield from _families(entries)


def serve(collectors: Iterable[Any], port: int, *, address: str = "127.0.0.1") -> Any:
    """Serves the collectors' metrics over HTTP, in a separate thread; returns the server.

    Args:
        collectors: what is asked at each scrape.
        port: the port to listen on.
        address: the address to listen on; that of a container where the scraper is another one.

    Raises:
        OSError: the port is taken.
    """
    from prometheus_client import CollectorRegistry, start_http_server

    registry = CollectorRegistry()
    for collector in collectors:
        registry.register(collector)
    server, _ = start_http_server(port, addr=address, registry=registry)
    return server


def _entries(values: Iterable[bytes]) -> Iterator[Entry]:
    for value in values:
        try:
            yield Entry(**json.loads(value))
        except (TypeError, ValueError):
            log.warning("ignored what is not an entry of the event log: %.200r", value)


def _families(entries: list[Entry]) -> Iterator[Any]:
    from prometheus_client.core import CounterMetricFamily

    left = [entry for entry in entries if entry.drain_s is not None]
    notices = CounterMetricFamily(
        "sunspot_eviction_notices",
        "Scheduled events of the cluster's VMs.",
        labels=["group", "type"],
    )
    for labels, count in Counter((e.group, e.type) for e in entries).items():
        notices.add_metric(labels, count)
    drains = CounterMetricFamily(
        "sunspot_eviction_drains",
        'Nodes that left after a notice: with their work done ("idle") or not ("deadline").',
        labels=["group", "outcome"],
    )
    for labels, count in Counter((e.group, e.outcome) for e in left).items():
        drains.add_metric(labels, count)
    seconds = CounterMetricFamily(
        "sunspot_eviction_drain_seconds",
        "Seconds from a notice until the node had left the cluster.",
        labels=["group"],
    )
    for group in sorted({e.group for e in left}):
        seconds.add_metric([group], sum(e.drain_s or 0.0 for e in left if e.group == group))
    yield from (notices, drains, seconds)
