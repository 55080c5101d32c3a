"""What Prometheus gets of a cluster's record, and that the dashboard asks for nothing else."""

import json
import re
import time

import pytest
import requests

from sunspot import monitoring
from sunspot.node import gcs, metrics
from sunspot.node.azure.live import LiveSettings
from sunspot.node.azure.record import HeadRecord
from sunspot.node.collector import NodeCollector
from sunspot.node.events import Event
from sunspot.node.free_ports import free_port
from sunspot.node.metrics import Entry, EventLog, EvictionCollector
from sunspot.node.notices import Notice
from sunspot.node.record_metrics import RecordCollector
from sunspot.node.teller import about

HOUR_S = 3600.0
SPOT = {"ray.io/market-type": "spot"}
SETTINGS = LiveSettings(
    autoscaler={
        "head_node_type": "head",
        "available_node_types": {
            "head": {"labels": {}},
            "gpu": {"labels": SPOT, "min_workers": 1, "max_workers": 8},
        },
    },
    prices={"gpu": 0.25, "head": 0.5, "fixed": 1.0},
)


@pytest.fixture
def record(tmp_path):
    return HeadRecord(tmp_path)


def scraped(*collectors):
    port = free_port(set())
    server = metrics.serve(collectors, port)
    try:
        return requests.get(f"http://127.0.0.1:{port}/metrics", timeout=10).text
    finally:
        server.shutdown()
        server.server_close()


def of_record(record, settings=SETTINGS, markets=None):
    return RecordCollector(record, lambda: settings, lambda: markets or {})


def test_events_are_counted_by_kind_and_group(record):
    for node in ("a", "b"):
        record.events.add(Event(kind="joined", group="gpu", node=node))
    record.events.add(Event(kind="refused", group="gpu"))
    text = scraped(of_record(record))
    assert 'sunspot_events_total{group="gpu",kind="joined"} 2.0' in text
    assert 'sunspot_events_total{group="gpu",kind="refused"} 1.0' in text


def test_cost_and_hours_so_far_are_by_market(record):
    now = time.time()
    for node, group in (("a", "gpu"), ("h", "head"), ("f", "fixed")):
        record.events.add(Event(kind="joined", group=group, node=node, time=now - 2 * HOUR_S))
        record.events.add(Event(kind="drained", group=group, node=node, time=now))
    text = scraped(of_record(record, markets={"fixed": "spot", "head": "on-demand"}))
    found = dict(re.findall(r'sunspot_cost_so_far_usd\{market="([\w-]+)"\} ([\d.]+)', text))
    assert {market: round(float(usd), 6) for market, usd in found.items()} == {
        "spot": 2.5,
        "on-demand": 1.0,
    }
    assert 'sunspot_machine_hours_total{market="spot"} 4.0' in text


def test_the_limits_of_groups_and_those_that_get_no_machines(record):
    record.notices.put(Notice(about=about("gpu"), text="paused"))
    record.notices.put(Notice(about=about("cpu"), text="refused", until=4e9))
    record.notices.put(Notice(about="settings", text="refused"))
    text = scraped(of_record(record))
    assert 'sunspot_workers_min{group="gpu"} 1.0' in text
    assert 'sunspot_workers_max{group="gpu"} 8.0' in text
    assert 'sunspot_workers_max{group="head"}' not in text
    assert re.findall(r"^sunspot_group_paused.*", text, re.M) == [
        'sunspot_group_paused{group="gpu"} 1.0'
    ]
    assert re.findall(r"^sunspot_group_refused_until_seconds.*", text, re.M) == [
        'sunspot_group_refused_until_seconds{group="cpu"} 4e+09'
    ]


def test_a_head_without_an_autoscaler_has_a_record_too(record):
    record.events.add(Event(kind="joined", group="head", node="h"))
    text = scraped(of_record(record, LiveSettings()))
    assert 'sunspot_events_total{group="head",kind="joined"} 1.0' in text
    assert "sunspot_workers_max{" not in text


def test_the_dashboard_asks_only_for_metrics_that_the_head_serves(record, monkeypatch):
    entry = Entry(node="a", group="g", event="1", type="Preempt", noticed_at=1.0, notice_s=30.0)
    monkeypatch.setattr(gcs, "connect", lambda _: None)
    monkeypatch.setattr(gcs, "alive_labels", lambda *_: [{"ray.io/node-group": "gpu"}])
    monkeypatch.setattr(EventLog, "read", lambda _: [entry])
    served = {
        name
        for collector in (
            EvictionCollector(EventLog("h:1")),
            NodeCollector("h:1", lambda: SETTINGS.prices),
            of_record(record),
        )
        for name in re.findall(r"^# TYPE (\w+)", scraped(collector), re.M)
    }
    dashboard = json.loads((monitoring.FOLDER / "grafana/dashboards/sunspot.json").read_text())
    asked = {
        name
        for panel in dashboard["panels"]
        for target in panel["targets"]
        for name in re.findall(r"\bsunspot_\w+", target["expr"])
    }
    assert asked
    assert asked <= served
