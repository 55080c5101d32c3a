"""The record of what happened to a cluster's nodes."""

import fcntl
import json
import stat
import threading

import pytest

from sunspot.node import events, ledger, record_metrics
from sunspot.node.events import Event, EventRecord
from sunspot.node.shortening import shortened


@pytest.fixture
def record(tmp_path):
    return EventRecord(tmp_path / "events.jsonl")


def test_events_are_kept_in_the_order_in_which_they_were_written(record):
    events = [
        Event(kind="launched", group="spot", node="spot-0", reason="by the autoscaler", time=2.0),
        Event(kind="scaled", group="spot", reason="to 1 by hand, from 0", time=1.0),
    ]
    for event in events:
        record.add(event)
    assert EventRecord(record.path).read() == events


def test_only_the_owner_can_read_them(record):
    record.add(Event(kind="joined", group="head", node="head"))
    assert stat.S_IMODE(record.path.stat().st_mode) == 0o600


def test_a_cluster_without_events_has_none(record):
    assert record.read() == []
    assert record.kinds("head") == set()


def test_a_cluster_that_was_removed_gets_no_new_folder(tmp_path):
    gone = EventRecord(tmp_path / "gone" / "events.jsonl")
    gone.add(Event(kind="lost", group="spot", node="spot-0"))
    assert not gone.path.parent.exists()


def test_half_a_line_of_a_full_disk_hides_no_other_event(record):
    record.add(Event(kind="joined", group="spot", node="spot-0"))
    with record.path.open("a") as file:
        file.write('{"kind": "lo\n[]\n{"unknown": 1}\n')
    record.add(Event(kind="lost", group="spot", node="spot-0"))
    assert [event.kind for event in record.read()] == ["joined", "lost"]


RIGHT = {"kind": "joined", "group": "spot", "node": "spot-0", "time": 1.0}
# What a job may write, which runs as the record's owner.
WRONG = (
    {"group": ["spot"]},
    {"kind": 7},
    {"node": None},
    {"reason": {}},
    {"reason": "\ud800"},
    {"time": "now"},
    {"time": float("nan")},
    {"time": 1e300},
    {"time": 10**400},
    {"time": -1.0},
    {"earlier": ["hours"]},
    {"earlier": None},
    {"earlier": {"hours": "1"}},
    {"earlier": {"lost": float("inf")}},
)


@pytest.mark.parametrize("wrong", WRONG, ids=str)
def test_a_line_with_a_field_of_another_kind_is_left_out(wrong):
    lines = [json.dumps({**RIGHT, **wrong}), json.dumps(RIGHT)]
    assert events.parse("\n".join(lines)) == [Event(**RIGHT)]


def test_a_line_that_is_nested_too_deep_is_left_out():
    assert events.parse("[" * 100_000) == []


def test_a_sum_without_its_parts_is_no_time_at_all():
    (event,) = events.parse('{"kind": "earlier", "group": "x", "time": 1}')
    assert [life.hours(2.0) for life in ledger.lives([event])] == [0.0]
    assert record_metrics._counts([event]) == {("earlier", "x"): 1}
    assert [one.group for one in shortened([event], 2.0)] == ["x"]


def test_who_keeps_the_record_locked_stops_no_writer(record, monkeypatch):
    monkeypatch.setattr(events, "LOCK_S", 0.05)
    record.add(Event(**RIGHT))
    with record.path.open() as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        record.add(Event(**RIGHT))
        with pytest.raises(BlockingIOError):
            record.rewrite(lambda events: events)
    assert record.read() == [Event(**RIGHT)]
    record.add(Event(**RIGHT))
    assert len(record.read()) == 2


def test_writers_at_the_same_time_lose_nothing(record):
    def write(number):
        for _ in range(50):
            record.add(Event(kind="joined", group="spot", node=f"spot-{number}"))

    threads = [threading.Thread(target=write, args=[number]) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(record.read()) == 200


def test_what_is_known_of_one_node(record):
    record.add(Event(kind="joined", group="spot", node="spot-0"))
    record.add(Event(kind="evicted", group="spot", node="spot-1"))
    assert record.kinds("spot-0") == {"joined"}
