"""What Prometheus reads about evictions, from entries of an event log without a GCS."""

import json
import urllib.request
from dataclasses import asdict

import pytest

from sunspot.node import gcs, metrics
from sunspot.node.free_ports import free_port
from sunspot.node.metrics import Entry, EventLog

NOTICE = Entry(node="a", group="t4", event="1", type="Preempt", noticed_at=1.0, notice_s=30.0)
LEFT = Entry(**{**asdict(NOTICE), "event": "2", "outcome": "idle", "drain_s": 4.5})


class Store:
    """A GCS's key-value store, as far as the event log uses it."""

    def __init__(self) -> None:
        self.values: dict[bytes, bytes] = {}

    def internal_kv_put(self, key: bytes, value: bytes, *_: object, timeout: float) -> None:
        assert timeout > 0
        self.values[key] = value

    def internal_kv_keys(self, *_: object, timeout: float) -> list[bytes]:
        assert timeout > 0
        return list(self.values)

    def internal_kv_multi_get(
        self, keys: list[bytes], *_: object, timeout: float
    ) -> dict[bytes, bytes]:
        assert timeout > 0
        return {key: self.values[key] for key in keys}


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Store:
    made = Store()
    monkeypatch.setattr(gcs, "connect", lambda _: made)
    return made


def served() -> dict[str, float]:
    """The samples that a scrape of the endpoint gets."""
    port = free_port(set())
    server = metrics.serve([metrics.EvictionCollector(EventLog("h:1"))], port)
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as answer:
            text = answer.read().decode()
    finally:
        server.shutdown()
        server.server_close()
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines)}


def test_nothing_happened(store: Store) -> None:
    assert served() == {"sunspot_eviction_log_up": 1.0}


def test_notices_and_drains_are_counted_by_group(store: Store) -> None:
    event_log = EventLog("h:1")
    for entry in (NOTICE, LEFT, Entry(**{**asdict(LEFT), "node": "b", "drain_s": 20.0})):
        event_log.write(entry)
    assert served() == {
        "sunspot_eviction_log_up": 1.0,
        'sunspot_eviction_notices_total{group="t4",type="Preempt"}': 3.0,
        'sunspot_eviction_drains_total{group="t4",outcome="idle"}': 2.0,
        'sunspot_eviction_drain_seconds_total{group="t4"}': 24.5,
    }


def test_an_entry_that_is_written_again_counts_once(store: Store) -> None:
    event_log = EventLog("h:1")
    event_log.write(NOTICE)
    event_log.write(Entry(**{**asdict(NOTICE), "outcome": "deadline", "drain_s": 25.0}))
    assert served()['sunspot_eviction_notices_total{group="t4",type="Preempt"}'] == 1.0


@pytest.mark.parametrize("broken", [b"", b"{}", b"[]", b"\xff", b'{"node": "a", "more": 1}'])
def test_what_is_not_an_entry_is_ignored(store: Store, broken: bytes) -> None:
    store.values[b"x"] = broken
    store.values[b"y"] = json.dumps(asdict(NOTICE)).encode()
    assert served()['sunspot_eviction_notices_total{group="t4",type="Preempt"}'] == 1.0


def test_without_a_gcs_the_endpoint_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(address: str) -> None:
        raise RuntimeError("no GCS")

    monkeypatch.setattr(gcs, "connect", refuse)
    assert served() == {"sunspot_eviction_log_up": 0.0}
