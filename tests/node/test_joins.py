"""Machines that do not join are given back, and a group that never boots is paused."""

import json

import pytest

from sunspot.node.events import EventRecord
from sunspot.node.joins import END_AGAIN_S, LATE_S, TRIES, Joins
from sunspot.node.machines import Machine
from sunspot.node.notices import Notices
from sunspot.node.teller import Teller

HEAD = Machine(id="head", node_type="head", is_head=True, running=True)
GROUPS = {"gpu-on-demand": "gpu"}
LIMIT_S = 1200.0


def machine(name, kind="gpu"):
    return Machine(id=name, node_type=kind, is_head=False, running=True)


class Cluster:
    """A cluster whose machines join, and are evicted, as a test says."""

    def __init__(self, folder):
        self.folder = folder
        self.now = 1000.0
        self.members, self.gone, self.drains = set(), set(), set()
        self.deaf = False
        self.asked = 0
        self.teller = Teller(
            EventRecord(folder / "events.jsonl"), Notices(folder / "notices.json"), lambda: self.now
        )
        self.joins = self.started()

    def started(self):
        """The watch of a head that has just started."""
        return Joins(
            self.folder / "joins.json",
            members=self,
            why=lambda name: f"{name}: no such tag",
            teller=self.teller,
            timeout_s=LIMIT_S,
            clock=lambda: self.now,
        )

    def names(self):
        self.asked += 1
        if self.deaf:
            raise OSError("no answer")
        return self.members

    def evicted(self, machine_id):
        return machine_id in self.gone

    def drained(self, machine_id):
        return machine_id in self.drains

    def tick(self, *machines, after=0.0):
        self.now += after
        return self.joins.update([HEAD, *machines], GROUPS)

    def fail(self, *names, kind="gpu"):
        for name in names:
            assert self.tick(machine(name, kind)) == []
            assert self.tick(machine(name, kind), after=LIMIT_S + 1) == [name]
            self.tick()

    def told(self):
        return [(one.kind, one.group, one.node) for one in self.teller.events.read()]

    def said(self):
        return {one.about: one.text for one in self.teller.notices.read()}


@pytest.fixture
def cluster(tmp_path):
    return Cluster(tmp_path)


def test_a_machine_that_joins_in_time_stays(cluster):
    assert cluster.tick(machine("gpu_1")) == []
    cluster.members = {"gpu_1"}
    assert cluster.tick(machine("gpu_1"), after=LIMIT_S - 1) == []
    assert cluster.tick(machine("gpu_1"), after=10 * LIMIT_S) == []
    assert cluster.told() == [("launched", "gpu", "gpu_1"), ("joined", "gpu", "gpu_1")]


def test_the_gcs_is_asked_only_while_a_machine_is_awaited(cluster):
    cluster.tick()
    assert cluster.asked == 0
    cluster.members = {"gpu_1"}
    cluster.tick(machine("gpu_1"))
    cluster.tick(machine("gpu_1"))
    assert cluster.asked == 1


def test_one_that_does_not_join_is_given_back_with_the_reason(cluster):
    cluster.tick(machine("gpu_1"))
    assert cluster.tick(machine("gpu_1"), after=LIMIT_S - 1) == []
    assert cluster.tick(machine("gpu_1"), after=2) == ["gpu_1"]
    # Azure has not begun to delete it; it is not asked at each tick.
    assert cluster.tick(machine("gpu_1"), after=1) == []
    assert cluster.tick(machine("gpu_1"), after=END_AGAIN_S) == ["gpu_1"]
    cluster.tick()
    assert cluster.told() == [("launched", "gpu", "gpu_1"), ("gave-up", "gpu", "gpu_1")]
    assert "no such tag" in cluster.teller.events.read()[-1].reason
    assert cluster.joins.paused("gpu") is None


def test_three_in_a_row_pause_their_group_until_its_settings_change(cluster):
    cluster.joins.follow("first")
    cluster.fail(*(f"gpu_{n}" for n in range(TRIES)))
    assert "gpu_2: no such tag" in cluster.joins.paused("gpu")
    assert cluster.told()[-1] == ("paused", "gpu", "")
    assert "no such tag" in cluster.said()["group:gpu"]
    assert "sunspot scale gpu=N" in cluster.said()["group:gpu"]
    cluster.joins.follow("first")
    assert cluster.joins.paused("gpu")
    cluster.joins.follow("second")
    assert cluster.joins.paused("gpu") is None
    assert cluster.told()[-1] == ("resumed", "gpu", "")
    assert cluster.said() == {}
    # It counts from the beginning.
    cluster.fail("gpu_8", "gpu_9")
    assert cluster.joins.paused("gpu") is None


def test_an_on_demand_twin_pauses_its_group(cluster):
    cluster.fail("a", "b", "c", kind="gpu-on-demand")
    assert cluster.joins.paused("gpu")
    assert cluster.joins.paused("gpu-on-demand") is None


def test_one_that_joins_in_between_makes_it_no_row(cluster):
    cluster.fail("a", "b")
    cluster.members = {"ok"}
    cluster.tick(machine("ok"))
    cluster.tick()
    cluster.fail("c", "d")
    assert cluster.joins.paused("gpu") is None
    cluster.fail("e")
    assert cluster.joins.paused("gpu")


def test_other_kinds_are_counted_apart(cluster):
    cluster.fail("a", "b")
    cluster.fail("c", kind="cpu")
    assert cluster.joins.paused("gpu") is None
    assert cluster.joins.paused("cpu") is None


def test_a_restart_of_the_head_forgets_neither_a_row_nor_a_pause(cluster):
    cluster.joins.follow("first")
    cluster.fail("a", "b")
    cluster.joins = cluster.started()
    cluster.joins.follow("first")
    cluster.fail("c")
    cluster.joins = cluster.started()
    cluster.joins.follow("first")
    assert cluster.joins.paused("gpu")


def test_a_restart_tells_nothing_twice(cluster):
    cluster.members = {"gpu_1"}
    cluster.tick(machine("gpu_1"))
    cluster.joins = cluster.started()
    cluster.tick(machine("gpu_1"))
    assert cluster.told() == [("launched", "gpu", "gpu_1"), ("joined", "gpu", "gpu_1")]


def test_the_time_in_which_the_head_was_away_does_not_count(cluster):
    cluster.tick(machine("gpu_1"))
    cluster.now += 10 * LIMIT_S
    cluster.joins = cluster.started()
    assert cluster.tick(machine("gpu_1"), after=1) == []
    assert cluster.tick(machine("gpu_1"), after=LIMIT_S) == ["gpu_1"]


def test_a_gcs_that_does_not_answer_ends_no_machine(cluster):
    cluster.tick(machine("gpu_1"))
    cluster.deaf = True
    assert cluster.tick(machine("gpu_1"), after=10 * LIMIT_S) == []
    cluster.deaf, cluster.members = False, {"gpu_1"}
    assert cluster.tick(machine("gpu_1"), after=1) == []
    assert cluster.told()[-1] == ("joined", "gpu", "gpu_1")


def test_how_a_machine_went_is_told_once(cluster):
    cluster.members = {"given-back", "evicted", "lost", "drained"}
    cluster.tick(*map(machine, ("given-back", "evicted", "lost", "drained", "never-came")))
    cluster.joins.ended("given-back", "by the autoscaler")
    cluster.joins.ended("given-back", "by the autoscaler")
    # One that is evicted drains, too.
    cluster.gone, cluster.drains = {"evicted"}, {"drained", "evicted"}
    cluster.tick()
    cluster.tick()
    ends = {node: kind for kind, _, node in cluster.told() if kind not in {"launched", "joined"}}
    assert ends == {
        "given-back": "drained",
        "evicted": "evicted",
        "lost": "lost",
        "drained": "drained",
        "never-came": "lost",
    }
    assert len(cluster.told()) == 5 + 4 + 5


def test_a_machine_whose_deletion_azure_forgot_ends_when_it_is_gone(cluster):
    cluster.members = {"quick", "slow"}
    cluster.tick(machine("quick"), machine("slow"))
    for name in ("quick", "slow"):
        cluster.joins.ended(name, "by the autoscaler")
    cluster.tick(machine("slow"), after=5)
    cluster.tick(machine("slow"), after=LATE_S)
    cluster.tick(after=5)
    ends = [one for one in cluster.teller.events.read() if one.kind == "drained"]
    assert [one.node for one in ends] == ["quick", "slow", "slow"]
    assert ends[-1].time == ends[0].time + LATE_S + 10


def test_a_machine_that_ray_gives_back_after_a_notice_was_evicted(cluster):
    """Ray ends a machine whose node has left, also where Azure is about to take it."""
    cluster.members = {"gpu_1"}
    cluster.tick(machine("gpu_1"))
    cluster.gone = {"gpu_1"}
    cluster.joins.ended("gpu_1", "by the autoscaler")
    cluster.tick()
    assert cluster.told()[2:] == [("evicted", "gpu", "gpu_1")]


@pytest.mark.parametrize("text", ["", "[]", '{"machines": 1}', '{"machines": {"a": {"x": 1}}}'])
def test_a_state_that_cannot_be_read_is_begun_anew(tmp_path, text):
    (tmp_path / "joins.json").write_text(text)
    cluster = Cluster(tmp_path)
    cluster.fail("a")
    assert json.loads((tmp_path / "joins.json").read_text())["failed"]["gpu"]


def test_a_full_disk_stops_nothing(cluster, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("sunspot.node.joins.write_private", full)
    monkeypatch.setattr("sunspot.node.notices.write_private", full)
    cluster.fail("a", "b", "c")
    assert cluster.joins.paused("gpu")
