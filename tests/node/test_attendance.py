"""The record of the head and of fixed groups: who was a member when."""

import os
from dataclasses import replace
from unittest import mock

import pytest

from sunspot.node import attendance, ledger, shortening
from sunspot.node.attendance import OFF_S, SHORTEN_S, Attendance
from sunspot.node.azure.record import HeadRecord
from sunspot.node.events import Event

HEAD = "x-head"


def labels(group, market="spot"):
    return {"ray.io/node-group": group, "ray.io/market-type": market}


class Cluster:
    """Its members, as a test says, and its record."""

    def __init__(self, folder):
        self.record = HeadRecord(folder)
        self.here = {HEAD: labels("head", "on-demand")}
        self.noticed, self.left = set(), set()
        self.now = 1000.0
        self.scaled = {"elastic"}

    def labels(self):
        return self.here

    def evicted(self, machine_id):
        return machine_id in self.noticed

    def drained(self, machine_id):
        return machine_id in self.left

    def start(self):
        """The watch of a head that has just started."""
        return Attendance(
            head=HEAD,
            members=self,
            events=self.record.events,
            scaled=lambda: self.scaled,
            beat=self.record.beat,
            clock=lambda: self.now,
        )

    def told(self):
        return [(event.kind, event.node) for event in self.record.events.read()]


@pytest.fixture
def cluster(tmp_path):
    return Cluster(tmp_path)


def test_members_join_once_and_those_that_leave_are_lost_evicted_or_drained(cluster):
    watch = cluster.start()
    cluster.here |= dict.fromkeys("abc", labels("fixed"))
    watch.turn()
    watch.turn()
    # An eviction drains, too.
    cluster.noticed, cluster.left = {"a"}, {"a", "c"}
    cluster.here = {HEAD: cluster.here[HEAD]}
    watch.turn()
    assert len(cluster.told()) == 7
    assert set(cluster.told()) == {
        ("joined", HEAD),
        ("joined", "a"),
        ("joined", "b"),
        ("joined", "c"),
        ("evicted", "a"),
        ("drained", "c"),
        ("lost", "b"),
    }
    assert watch.markets == {"head": "on-demand", "fixed": "spot"}


def test_a_large_record_is_shortened_once_an_hour(cluster, monkeypatch):
    monkeypatch.setattr(shortening, "LARGEST_BYTES", 0)
    watch, cluster.now = cluster.start(), 10 * ledger.DAY_S

    def story(node):
        joined = Event(kind="joined", group="fixed", node=node, time=1.0)
        for event in (joined, replace(joined, kind="drained", time=2.0)):
            cluster.record.events.add(event)

    story("a")
    watch.turn()
    assert cluster.told() == [("earlier", ""), ("joined", HEAD)]
    story("b")
    watch.turn()
    assert len(cluster.told()) == 4
    cluster.now += SHORTEN_S
    watch.turn()
    assert cluster.told() == [("earlier", ""), ("joined", HEAD)]
    # A full disk does not end the watch, nor does what somebody else wrote.
    for error in (OSError, KeyError, TypeError, ValueError):
        cluster.now += SHORTEN_S
        monkeypatch.setattr(type(cluster.record.events), "rewrite", mock.Mock(side_effect=error))
        watch.turn()


def test_what_the_autoscaler_scales_is_recorded_elsewhere(cluster):
    cluster.record.events.add(Event(kind="launched", group="elastic", node="e", time=1.0))
    watch = cluster.start()
    watch.turn()
    cluster.here["e"] = labels("elastic")
    watch.turn()
    del cluster.here["e"]
    watch.turn()
    assert cluster.told() == [("launched", "e"), ("joined", HEAD)]


def test_a_restart_of_the_head_tells_nothing_twice(cluster):
    cluster.here["a"] = labels("fixed")
    cluster.start().turn()
    before = cluster.told()
    cluster.start().turn()
    assert cluster.told() == before


def test_who_left_while_the_head_was_away_is_told_afterwards(cluster):
    cluster.here["a"] = labels("fixed")
    cluster.start().turn()
    del cluster.here["a"]
    cluster.start().turn()
    assert cluster.told()[-1] == ("lost", "a")


@pytest.mark.parametrize("away", [OFF_S - 10, OFF_S + 3600])
def test_a_head_that_was_off_is_not_billed_for_that_time(cluster, away):
    cluster.start().turn()
    os.utime(cluster.record.beat, (cluster.now + 100, cluster.now + 100))
    cluster.now += 100 + away
    cluster.start().turn()
    lives = ledger.lives(cluster.record.events.read())
    off = away > OFF_S
    assert cluster.told() == [
        ("joined", HEAD),
        *([("drained", HEAD), ("joined", HEAD)] if off else []),
    ]
    assert sum(life.hours(cluster.now) for life in lives) * 3600 == pytest.approx(
        100 if off else 100 + away
    )


def test_a_gcs_that_is_away_ends_nothing(cluster, monkeypatch):
    class OverError(BaseException):
        """Ends the watch of a test."""

    class Pause:
        turns = 0

        def wait(self, _seconds):
            Pause.turns += 1
            if Pause.turns == 3:
                raise OverError

    watch = cluster.start()
    watch.turn()
    monkeypatch.setattr(attendance.threading, "Event", Pause)
    monkeypatch.setattr(cluster, "labels", lambda: 1 / 0)
    with pytest.raises(OverError):
        watch.run()
    assert cluster.told() == [("joined", HEAD)]
