"""What evictions did to a cluster, for Prometheus.

A worker that is evicted is gone before anybody could scrape it. So it writes a record into the
cluster's GCS, and the head counts the records when it is asked: one endpoint, on the head alone.
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
class Record:
    """One notice that one node got.

    `type` is Azure's (Preempt, Reboot, ...). `notice_s` is the seconds it gave, None where it gave
    no time. `outcome` is "noticed" until the node has left, and for a Freeze for ever; then "idle"
    where its work had ended in time, "deadline" where it was stopped with work on it. `drain_s` is
    the seconds from the notice until the node had left the cluster, None before.
    """

    node: str
    group: str
    event: str
    type: str
    noticed_at: float
    notice_s: float | None
    outcome: str = "noticed"
    drain_s: float | None = None


class Journal:
    """The records of a cluster, kept by the GCS at HOST:PORT. Errors are Ray's own."""

    def __init__(self, address: str) -> None:
        self._address = address

    def write(self, record: Record) -> None:
        """Adds a record, or replaces the one of the same node and event."""
        key, value = f"{record.node}/{record.event}", json.dumps(asdict(record))
        gcs.connect(self._address).internal_kv_put(
            key.encode(), value.encode(), True, NAMESPACE, timeout=RPC_TIMEOUT_S
        )

    def read(self) -> list[Record]:
        """Every record; one that cannot be read is left out."""
        client = gcs.connect(self._address)
        keys = client.internal_kv_keys(b"", NAMESPACE, timeout=RPC_TIMEOUT_S)
        values = client.internal_kv_multi_get(keys, NAMESPACE, timeout=RPC_TIMEOUT_S)
        return list(_records(values.values()))


class Collector:
    """Turns the journal into metric families each time Prometheus asks."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal

    def collect(self) -> Iterator[Any]:
        from prometheus_client.core import GaugeMetricFamily

        try:
            records = self._journal.read()
        except Exception as error:  # Ray's errors have no common class; the endpoint lives on
            log.warning("the journal cannot be read: %s", error)
            yield GaugeMetricFamily("sunspot_eviction_journal_up", "1 if it could be read.", 0)
            return
        yield GaugeMetricFamily("sunspot_eviction_journal_up", "1 if it could be read.", 1)
        yield from _families(records)


def serve(collectors: Iterable[Any], port: int) -> Any:
    """Serves what the collectors tell over HTTP from a thread of its own; returns the server.

    Raises:
        OSError: the port is taken.
    """
    from prometheus_client import CollectorRegistry, start_http_server

    registry = CollectorRegistry()
    for collector in collectors:
        registry.register(collector)
    server, _ = start_http_server(port, addr="127.0.0.1", registry=registry)
    return server


def _records(values: Iterable[bytes]) -> Iterator[Record]:
    for value in values:
        try:
            yield Record(**json.loads(value))
        except (TypeError, ValueError):
            log.warning("left out what is no record of an eviction: %.200r", value)


def _families(records: list[Record]) -> Iterator[Any]:
    from prometheus_client.core import CounterMetricFamily

    left = [record for record in records if record.drain_s is not None]
    notices = CounterMetricFamily(
        "sunspot_eviction_notices",
        "Scheduled events of the cluster's VMs.",
        labels=["group", "type"],
    )
    for labels, count in Counter((r.group, r.type) for r in records).items():
        notices.add_metric(labels, count)
    drains = CounterMetricFamily(
        "sunspot_eviction_drains",
        'Nodes that left on a notice: with their work done ("idle") or not ("deadline").',
        labels=["group", "outcome"],
    )
    for labels, count in Counter((r.group, r.outcome) for r in left).items():
        drains.add_metric(labels, count)
    seconds = CounterMetricFamily(
        "sunspot_eviction_drain_seconds",
        "Seconds from a notice until the node had left the cluster.",
        labels=["group"],
    )
    for group in sorted({r.group for r in left}):
        seconds.add_metric([group], sum(r.drain_s or 0.0 for r in left if r.group == group))
    yield from (notices, drains, seconds)
