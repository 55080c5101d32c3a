"""When a cluster counts as idle, what is said before, and what is done: on a clock of ours."""

import math
import time

import pytest

from sunspot.node import idle
from sunspot.node.events import EventRecord
from sunspot.node.idle import Action, NotDoneError, Policy, Watch, judge
from sunspot.node.notices import Notice, Notices
from sunspot.node.usage import Seen

HOUR = 3600.0
JOB = Seen(uses=("job one",))
NOTHING = Seen()


class FakeCluster:
    """A cluster whose use a test sets, and that notes what is done to it."""

    name = "dev"

    def __init__(self, folder, action: Action = "stop-head", after_s=HOUR):
        self.events = EventRecord(folder / "events.jsonl")
        self.notices = Notices(folder / "notices.json")
        self.given: Policy | None = Policy(after_s=after_s, action=action)
        self.seen = NOTHING
        self.done = []
        self.fails = []

    def policy(self) -> Policy | None:
        return self.given

    def look(self):
        return self.seen

    def act(self, action):
        if self.fails:
            raise NotDoneError(self.fails.pop())
        self.done.append(action)

    def wake(self):
        self.done.append("wake")

    def said(self):
        return [one.text for one in self.notices.read() if one.about == idle.ABOUT]

    def happened(self):
        return [event.reason for event in self.events.read() if event.kind == "idle"]


class Days:
    """A watch over a cluster, and its clock."""

    def __init__(self, cluster):
        self.now = 0.0
        self.cluster = cluster
        self.watch = Watch(cluster, lambda: self.now)

    def at(self, minutes):
        self.now = minutes * 60
        return self.watch.step()


@pytest.fixture(params=["stop-head", "workers", "warn"])
def days(request, tmp_path):
    return Days(FakeCluster(tmp_path, request.param))


@pytest.mark.parametrize(
    ("idle_s", "kept_s", "phase", "left_s"),
    [
        (0, 0, "used", HOUR),
        (60, 0, "quiet", HOUR - 60),
        (HOUR - 300, 0, "soon", 300),
        (HOUR - 1, 0, "soon", 1),
        (HOUR, 0, "due", 0),
        (2 * HOUR, 7200, "quiet", 7200),
        (2 * HOUR, 300, "soon", 300),
        (60, 60, "quiet", HOUR - 60),
    ],
)
def test_what_is_so_of_a_cluster(idle_s, kept_s, phase, left_s):
    assert judge(Policy(after_s=HOUR, action="warn"), idle_s, kept_s) == (phase, left_s)


def test_a_short_limit_is_looked_at_often_and_told_of_after_its_half():
    short = Policy(after_s=6, action="warn")
    assert (short.notice_s, short.poll_s) == (3, 0.5)
    assert Policy(after_s=HOUR, action="warn").poll_s == 30


def test_it_is_said_five_minutes_before_and_then_done_once(days):
    cluster, action = days.cluster, days.cluster.given.action
    for minutes in (0, 20, 54):
        days.at(minutes)
    assert (cluster.said(), cluster.done) == ([], [])
    days.at(55)
    days.at(57)
    (said,) = cluster.said()
    assert "sunspot keep-alive dev 2h" in said
    assert cluster.happened() == [said]
    days.at(60)
    days.at(61)
    days.at(200)
    assert cluster.done == ([] if action == "warn" else [action])
    assert len(cluster.happened()) == 2
    assert "60 minutes" in cluster.said()[0]


def test_use_begins_it_anew_and_takes_the_notice_back(days):
    cluster = days.cluster
    days.at(56)
    assert cluster.said()
    cluster.seen = JOB
    days.at(57)
    assert cluster.said() == []
    cluster.seen = NOTHING
    days.at(57 + 54)
    assert (cluster.said(), cluster.done) == ([], [])
    days.at(57 + 60)
    assert len(cluster.happened()) == 2


def test_what_was_said_before_the_head_stopped_is_taken_back(days):
    idle.keep_alive(days.cluster.notices, HOUR)
    days.cluster.notices.put(Notice(about=idle.ABOUT, text="the cluster is being suspended"))
    days.at(0)
    assert [one.about for one in days.cluster.notices.read()] == [idle.KEEP_ALIVE]


def test_a_job_that_began_and_ended_between_two_looks_counts(days):
    days.at(40)
    days.cluster.seen = Seen(ended_s=5.0)
    days.at(56)
    assert days.cluster.said() == []


def test_workers_come_back_with_the_next_use(tmp_path):
    days = Days(FakeCluster(tmp_path, "workers"))
    days.at(55)
    days.at(60)
    days.cluster.seen = JOB
    days.at(61)
    assert days.cluster.done == ["workers", "wake"]
    assert days.cluster.said() == []
    assert "come back" in days.cluster.happened()[-1]


def test_a_cluster_that_is_kept_is_not_touched_until_that_ends(days, monkeypatch):
    cluster = days.cluster
    monkeypatch.setattr(time, "time", lambda: 1e9 + days.now)
    until = idle.keep_alive(cluster.notices, 2 * HOUR)
    assert until == 1e9 + 2 * HOUR
    days.at(60)
    days.at(114)
    assert (cluster.said(), cluster.done) == ([], [])
    days.at(116)
    assert cluster.said()
    days.at(121)
    assert len(cluster.happened()) == 2
    assert [one.about for one in cluster.notices.read()] == [idle.ABOUT]


def test_what_was_kept_for_long_is_announced_before_something_is_done(days):
    cluster = days.cluster
    days.at(0)
    idle.keep_alive(cluster.notices, 10 * HOUR)
    days.at(90)
    assert cluster.happened() == []
    idle.keep_alive(cluster.notices, 0)
    days.at(91)
    days.at(95)
    assert (len(cluster.happened()), cluster.done) == (1, [])
    days.at(96)
    assert len(cluster.happened()) == 2


def test_workers_come_back_when_somebody_keeps_the_cluster(tmp_path):
    days = Days(FakeCluster(tmp_path, "workers"))
    days.at(55)
    days.at(60)
    idle.keep_alive(days.cluster.notices, HOUR)
    days.at(61)
    assert days.cluster.done == ["workers", "wake"]
    idle.keep_alive(days.cluster.notices, 0)
    assert idle.kept(days.cluster.notices) == 0


def test_what_cannot_be_seen_is_neither_used_nor_stopped(days):
    cluster = days.cluster
    days.at(30)
    cluster.seen = None
    days.at(70)
    assert cluster.done == []
    assert len(cluster.happened()) == 0
    cluster.seen = NOTHING
    days.at(71)
    assert len(cluster.happened()) == 1
    days.at(76)
    assert len(cluster.happened()) == 2


def test_what_failed_is_said_and_tried_again_later(tmp_path):
    days = Days(FakeCluster(tmp_path, "stop-head"))
    days.cluster.fails = ["AuthorizationFailed"]
    days.at(55)
    days.at(60)
    assert "AuthorizationFailed" in days.cluster.said()[0]
    days.at(61)
    assert days.cluster.done == []
    days.at(60 + idle.AGAIN_S / 60)
    assert days.cluster.done == ["stop-head"]


def test_a_changed_policy_holds_at_once(tmp_path):
    days = Days(FakeCluster(tmp_path, "workers"))
    days.at(55)
    days.at(60)
    days.cluster.given = None
    days.at(61)
    assert days.cluster.done == ["workers", "wake"]
    assert days.cluster.said() == []
    days.cluster.given = Policy(after_s=600, action="stop-head")
    days.at(66)
    assert days.cluster.said()
    days.at(71)
    assert days.cluster.done[-1] == "stop-head"


@pytest.mark.parametrize(
    "wrong",
    [
        {"after_minutes": 60, "action": "explode"},
        {"after_minutes": 0, "action": "warn"},
        {"after_minutes": math.inf, "action": "warn"},
        {"action": "warn"},
    ],
)
def test_what_is_not_a_policy_is_refused(wrong):
    with pytest.raises((ValueError, KeyError)):
        Policy.of(wrong)
    assert Policy.of(None) is None
