"""The demo's eviction: which worker goes, what proves that nothing is lost, what the page shows."""

from dataclasses import dataclass, field
from typing import Any

import pytest
from demo_runs import finished

from sunspot import demo, demo_eviction
from sunspot.errors import SunspotError
from sunspot.node.events import Event
from sunspot.report import WorkloadResult
from sunspot.targets.history import Recorded

SPOT, HEAD = {"ray.io/market-type": "spot"}, {"ray.io/market-type": "on-demand"}


def node(name, labels=SPOT, state="ALIVE"):
    return {"node_id": f"id of {name}", "node_name": name, "state": state, "labels": labels}


def task(of, name="primes", state="RUNNING"):
    return {"name": name, "state": state, "node_id": f"id of {of}"}


@dataclass
class Client:
    """Ray's state; `tasks` are its answers, the last one again and again."""

    tasks: list[list[dict[str, Any]]]
    nodes: list[dict[str, Any]] = field(
        default_factory=lambda: [node("head", HEAD), node("workers-0"), node("workers-1")]
    )

    def state(self, kind):
        if kind == "nodes":
            return self.nodes
        return self.tasks.pop(0) if len(self.tasks) > 1 else self.tasks[0]


@dataclass
class Target:
    """A target that evicts at once, and has these events."""

    happened: list[Event] = field(default_factory=list)
    evicted: list[tuple[str, str, float]] = field(default_factory=list)
    name: str = "stand-in"

    def evict(self, name, node, notice_s, progress):
        progress("it goes")
        self.evicted.append((name, node, notice_s))
        return f"{node} left"

    def recorded(self, _name):
        return Recorded(events=self.happened)


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(demo_eviction, "POLL_INTERVAL_S", 0.001)


@pytest.mark.parametrize(
    ("numbers", "seconds", "longer"),
    [
        (1_000_000, 4.0, 2_000_000),
        (1_000_000, 16.0, 500_000),
        (1_000_000, 60.0, 200_000),  # a slow machine
        (1_000_000, 0.0, 20_000_000),  # a fast one
    ],
)
def test_the_work_lasts_long_enough_for_an_eviction(numbers, seconds, longer):
    assert demo_eviction.last_number(numbers, seconds) == demo_eviction.FIRST + longer


def test_the_sieve_counts_as_trial_division_does():
    first, last = demo_eviction.FIRST, demo_eviction.FIRST + 200
    expected = [n for n in range(first, last + 1) if all(n % d for d in range(2, 3002))]
    assert demo_eviction.primes_to(last) == len(expected) > 0


@pytest.mark.parametrize(
    ("tasks", "busy"),
    [
        ([task("workers-0")], "workers-0"),
        ([task("workers-0"), task("workers-1")], "workers-1"),
        ([task("head"), task("workers-0")], "workers-0"),
        ([task("head")], None),
        ([task("workers-0", state="FINISHED")], None),
        ([task("workers-0", name="warm-up")], None),
        ([task("workers-9")], None),  # one that is gone
        ([], None),
    ],
)
def test_a_spot_worker_that_runs_the_work_goes(tasks, busy):
    assert demo_eviction._busy(Client([tasks]), "primes") == busy  # type: ignore[arg-type]


def test_the_eviction_waits_until_the_work_runs():
    target, client = Target(), Client([[], [], [task("workers-1")]])
    with demo_eviction.eviction(target, "demo", client, "primes") as leaving:  # type: ignore[arg-type]
        assert leaving.result(30) == "workers-1"
    assert target.evicted == [("demo", "workers-1", demo_eviction.NOTICE_S)]


def test_work_that_no_worker_runs_is_an_error(monkeypatch):
    monkeypatch.setattr(demo_eviction, "BUSY_TIMEOUT_S", 0.01)
    client = Client([[]])
    with (
        demo_eviction.eviction(Target(), "demo", client, "primes") as leaving,  # type: ignore[arg-type]
        pytest.raises(SunspotError, match="no spot worker ran 'primes'"),
    ):
        leaving.result(30)


EVENTS = [
    Event(kind="joined", group="workers", node="workers-1", time=1.0),
    Event(kind="evicted", group="workers", node="workers-1", time=5.0),
    Event(kind="replaced", group="workers", node="workers-1", time=5.5),
    Event(kind="drained", group="workers", node="workers-1", time=8.0),
    Event(kind="joined", group="workers", node="workers-2", time=9.0),
]


def test_the_replacement_is_who_joins_and_was_not_there():
    new = demo_eviction.replacement(Target(EVENTS), "demo", {"workers-1"})  # type: ignore[arg-type]
    assert new.node == "workers-2"


def test_a_replacement_that_does_not_come_is_an_error(monkeypatch):
    monkeypatch.setattr(demo_eviction, "JOIN_TIMEOUT_S", 0.01)
    with pytest.raises(SunspotError, match="no worker came"):
        demo_eviction.replacement(Target(EVENTS[:4]), "demo", {"workers-1"})  # type: ignore[arg-type]


# The run with it


def result(count, workload="primes"):
    return WorkloadResult(
        workload=workload,
        tasks=24,
        nodes=3,
        workers=6,
        seconds=12.0,
        one_worker_seconds=None,
        summary="",
        details={"start": demo_eviction.FIRST, "stop": demo_eviction.FIRST + 100, "count": count},
    )


def run(count):
    return finished(result(count))


@pytest.mark.parametrize("lost", [0, 1])
def test_a_lost_result_fails_the_demo(monkeypatch, tmp_path, capsys, lost):
    count = demo_eviction.primes_to(demo_eviction.last_number(100, 12.0)) - lost
    monkeypatch.setattr(demo, "_run_one", lambda *_: run(count))
    target, client = Target(EVENTS), Client([[task("workers-1")]])
    cluster = demo._Cluster(target, "demo", client, {"workers-1"})  # type: ignore[arg-type]
    first = run(count)
    if lost:
        with pytest.raises(SunspotError, match=f"with workers-1 evicted, {count} primes"):
            demo._run_evicted(cluster, {}, first, tmp_path)
    else:
        assert demo._run_evicted(cluster, {}, first, tmp_path).result.details["count"] == count
        told = capsys.readouterr().out
        assert "workers-1 is on spot, and is evicted now" in told
        assert "workers-2 has come in the place of workers-1" in told
