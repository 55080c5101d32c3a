"""A record that has grown large is made shorter, and adds up to the same."""

import itertools
import threading

import pytest

from sunspot.node import events, ledger, shortening
from sunspot.node.events import Event, EventRecord, Kind
from sunspot.node.ledger import DAY_S, HOUR_S
from sunspot.node.record_metrics import _counts
from sunspot.node.shortening import shorten, shortened

NOW = 100 * DAY_S
SINCE = NOW - 2 * DAY_S
MARKETS = {"gpu": "spot", "cpu": "on-demand"}
PRICES = {"gpu": 0.5, "cpu": 2.0, "head": 0.1}


def lived(node, began, hours=1.0, *, group="gpu", end: Kind | None = "drained"):
    """The events of a machine that began so many days ago."""
    begin = NOW - began * DAY_S
    told: list[tuple[Kind, float]] = [("launched", begin), ("joined", begin + 60)]
    if end:
        told.append((end, begin + hours * HOUR_S))
    return [Event(kind=kind, group=group, node=node, time=when) for kind, when in told]


def months():
    """A head that has been up since the beginning, and a machine an hour."""
    events = [Event(kind="joined", group="head", node="head", time=1.0)]
    for number in range(2150):
        group, end = ("cpu", "drained") if number % 3 else ("gpu", "evicted")
        events += lived(f"n-{number}", 90 - number / 24, 2.5, group=group, end=end)
    events += lived("there", 40, group="cpu", end=None)
    events.append(Event(kind="refused", group="gpu", time=NOW - 50 * DAY_S))
    return sorted(events, key=lambda event: event.time)


def spent(events):
    return ledger.spent(ledger.lives(events), MARKETS, PRICES, NOW)


def test_cost_evictions_and_counts_stay_right():
    before = months()
    after = shortened(before, SINCE)
    assert len(after) < len(before) / 10
    for market, one in spent(before).items():
        assert spent(after)[market].usd == pytest.approx(one.usd)
        assert spent(after)[market].hours == pytest.approx(one.hours)
    for days in (1, 2):
        since = NOW - days * DAY_S
        assert ledger.evicted(after, since) == ledger.evicted(before, since) != {}
    assert _counts(after) == _counts(before)
    assert [event for event in after if event.time >= SINCE] == [
        event for event in before if event.time >= SINCE
    ]


def test_what_is_there_keeps_its_story():
    after = shortened(months(), SINCE)
    assert {life.node for life in ledger.lives(after) if life.end is None} == {"head", "there"}
    assert [event.kind for event in after if event.node == "there"] == ["launched", "joined"]


def test_a_machine_that_ended_lately_keeps_its_begin():
    events = lived("long", 30, 29.5 * 24)
    assert shortened(events, SINCE) == events


def test_what_was_added_up_is_added_up_again():
    once = shortened(months(), SINCE)
    again = shortened([*once, *lived("late", 1)], NOW)
    assert sum(event.kind == "earlier" for event in again) == 2
    assert spent(again)["spot"].hours == pytest.approx(spent(months())["spot"].hours + 1)


def test_only_a_large_record_is_rewritten(tmp_path, monkeypatch):
    record = EventRecord(tmp_path / "events.jsonl")
    for event in months():
        record.add(event)
    text = record.path.read_text()
    shorten(record, NOW)
    assert record.path.read_text() == text
    monkeypatch.setattr(shortening, "LARGEST_BYTES", len(text) - 1)
    shorten(record, NOW)
    assert record.size() < len(text) / 10
    assert record.path.stat().st_mode & 0o777 == 0o600
    assert record.read() == shortened(months(), SINCE)


def test_nothing_is_lost_that_is_written_meanwhile(tmp_path, monkeypatch):
    # Here the record is nearly always locked, and the machine may be busy.
    monkeypatch.setattr(events, "LOCK_S", 120.0)
    record = EventRecord(tmp_path / "events.jsonl")
    record.add(Event(kind="joined", group="gpu", node="first"))
    numbers, ended = itertools.count(), threading.Event()

    def write():
        while not ended.is_set():
            record.add(Event(kind="joined", group="gpu", node=f"n-{next(numbers)}"))

    thread = threading.Thread(target=write)
    thread.start()
    for _ in range(50):
        record.rewrite(lambda events: events)
    ended.set()
    thread.join()
    assert [event.node for event in record.read()][1:] == [f"n-{n}" for n in range(next(numbers))]
