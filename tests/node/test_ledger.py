"""How long machines have existed by a cluster's events, and what that cost."""

import pytest

from sunspot.node import ledger
from sunspot.node.events import Event
from sunspot.node.ledger import Life, Spent

HOUR = 3600.0


def event(kind, hours, node="gpu-0", group="gpu"):
    return Event(kind=kind, group=group, node=node, time=hours * HOUR)


@pytest.mark.parametrize(
    ("kinds", "begin", "end"),
    [
        (["launched"], 0, None),
        (["launched", "joined"], 0, None),
        (["joined"], 0, None),
        (["launched", "joined", "drained"], 0, 2),
        (["launched", "gave-up"], 0, 1),
        (["joined", "lost"], 0, 1),
        # The notice, and then its end.
        (["joined", "evicted", "drained"], 0, 2),
        (["joined", "evicted"], 0, 1),
        # It was called off.
        (["joined", "evicted", "joined"], 0, None),
        (["joined", "evicted", "joined", "drained"], 0, 3),
    ],
)
def test_a_machine_is_there_from_its_launch_to_its_last_end(kinds, begin, end):
    events = [event(kind, hour) for hour, kind in enumerate(kinds)]
    expected = Life(
        node="gpu-0",
        group="gpu",
        begin=begin * HOUR,
        end=None if end is None else end * HOUR,
    )
    assert ledger.lives(events) == [expected]


def test_a_head_that_was_off_has_another_life():
    events = [event("joined", 0), event("drained", 1), event("joined", 5)]
    assert [(life.begin / HOUR, life.end) for life in ledger.lives(events)] == [
        (0, HOUR),
        (5, None),
    ]


def test_what_is_about_a_group_or_an_unknown_node_is_no_machine():
    events = [event("scaled", 0, node=""), event("refused", 0, node=""), event("lost", 1)]
    assert ledger.lives(events) == []


def test_spot_and_on_demand_are_added_up_apart():
    events = [
        event("joined", 0, node="head", group="head"),
        event("launched", 1),
        event("launched", 1, node="gpu-1"),
        event("drained", 2),
        event("launched", 2, node="gpu-on-demand-0", group="gpu-on-demand"),
    ]
    markets = {"head": "on-demand", "gpu": "spot", "gpu-on-demand": "on-demand"}
    prices = {"head": 0.5, "gpu": 1.0, "gpu-on-demand": 4.0}
    assert ledger.spent(ledger.lives(events), markets, prices, 4 * HOUR) == {
        "spot": Spent(hours=4.0, usd=4.0),
        "on-demand": Spent(hours=6.0, usd=10.0),
    }


def test_a_machine_without_a_price_has_hours_and_is_named():
    lived = [Life(node="a", group="odd", begin=0.0), Life(node="b", group="gpu", begin=0.0)]
    assert ledger.spent(lived, {"odd": "spot", "gpu": "spot"}, {"gpu": 1.0}, HOUR) == {
        "spot": Spent(hours=2.0, usd=1.0, price_unknown=("odd",))
    }


def test_each_machine_that_was_evicted_lately_counts_once():
    events = [
        event("evicted", 1, node="old"),
        event("evicted", 30),
        event("drained", 30.1),
        event("evicted", 31),
        event("evicted", 40, node="gpu-1"),
        event("evicted", 40, node="cpu-0", group="cpu"),
    ]
    assert ledger.evicted(events, since=20 * HOUR) == {"gpu": 2, "cpu": 1}
