"""Ray's own autoscaler on scale sets: a real head, a stand-in for ARM whose VMs are real workers.

All tests share one cluster, and each begins and ends without a worker.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from functools import partial
from typing import Any

import pytest
from azure_cluster import (
    CLUSTER,
    DEADLINE_S,
    MOST,
    ON_DEMAND,
    PREFIX,
    SPOT,
    STACK,
    Azure,
    Jobs,
    most_at_once,
    running,
)
from azure_model.arm import HEAD, SCALE_SETS
from azure_model.http_service import Reply
from azure_model.imds import FakeAzure
from azure_model.imds import serving as serving_imds
from mixed_jobs import PURPOSE
from waiting import wait_for

from sunspot import group_status
from sunspot.node import ledger
from sunspot.node.azure.live import parse
from sunspot.targets.azure import draining, leaving, scaling
from sunspot.targets.azure.credentials import Endpoints
from sunspot.targets.protocol import silent
from sunspot.targets.scaling import Size

# Real Ray nodes and the autoscaler's ticks, on a machine that may be busy.
pytestmark = pytest.mark.timeout(1500)
MORE = "more"


@pytest.fixture(scope="module")
def azure() -> Iterator[Azure]:
    with running() as azure:
        yield azure


@pytest.fixture(scope="module")
def jobs(azure: Azure) -> Iterator[Jobs]:
    """A driver that most tests share."""
    with azure.jobs() as jobs:
        yield jobs


@pytest.fixture(autouse=True)
def never_too_many(azure: Azure) -> Iterator[None]:
    """Before and after a test there is no worker, and meanwhile never more than there may be."""
    azure.wait_until_empty()
    before = set(azure.arm.billed)
    yield
    azure.wait_until_empty()
    here = {name: bill for name, bill in azure.arm.billed.items() if name not in before}
    assert most_at_once(here) <= MOST


def test_a_waiting_task_gets_a_spot_machine_which_is_given_back_when_it_is_idle(
    azure: Azure, jobs: Jobs
):
    assert azure.workers() == []
    ((node_type, name),) = azure.result(jobs.begin("places", count=1))
    assert node_type == SPOT
    assert name.startswith(f"{PREFIX}{SPOT}_")
    azure.wait_until_empty()
    assert {s.name: s.capacity for s in azure.arm.sets.values()} == {
        f"{PREFIX}{SPOT}": 0,
        f"{PREFIX}{ON_DEMAND}": 0,
    }
    assert ("POST", f"{sets(SPOT)}/delete") in azure.arm.requests
    assert azure.kinds(name) == ["launched", "joined", "drained"]


def test_more_tasks_at_once_than_the_group_can_hold_wait_and_run(azure: Azure, jobs: Jobs):
    places = azure.result(jobs.begin("places", count=9))
    assert {node_type for node_type, _ in places} == {SPOT}


def busy(status: int, code: str) -> Reply:
    error = {"error": {"code": code, "message": "try again"}}
    return Reply(status, error, {"Retry-After": "0.1"})


def fail_changes(azure: Azure, *answers: Reply | None) -> None:
    """The next changes of a set get these answers."""
    azure.arm.failing = "PATCH"
    azure.arm.failures += answers


def supersede(azure: Azure) -> None:
    """A newer change of the set ends the operation of the next launch, and the set works on."""

    def preempt() -> None:
        azure.arm.on_poll = lambda: None
        azure.arm.preempt(f"{PREFIX}{SPOT}")

    azure.arm.on_poll = preempt


def add_one(azure: Azure) -> None:
    """The set has a machine that Ray did not ask for."""
    with azure.arm.lock:
        spot = azure.arm.sets[f"{PREFIX}{SPOT}"]
        spot.capacity += 1
        azure.arm._boot([azure.arm._begin(spot)])


def fail_in_many_ways(azure: Azure) -> None:
    """A change is throttled, in conflict, failing and dropped; it is made, and the answer lost."""
    throttled, conflict = busy(429, "TooManyRequests"), busy(409, "Conflict")
    fail_changes(azure, throttled, throttled, conflict, busy(500, "InternalError"), None)
    azure.arm.lost_answers = 1


def be_slow_and_loud(azure: Azure) -> None:
    azure.arm.launch_polls, azure.arm.is_loud = 40, True


# What the launch of one machine meets; tests/node/test_scale_set_limits.py has more of it.
FAULTS: dict[str, Callable[[Azure], None]] = {
    "slow, with upper-case names": be_slow_and_loud,
    "many failures": fail_in_many_ways,
    "a superseded launch": supersede,
    "a machine that nobody asked for": add_one,
}


@pytest.mark.parametrize("fault", FAULTS)
def test_after_a_fault_of_azure_the_number_of_machines_is_right(
    azure: Azure, jobs: Jobs, fault: str
):
    before = set(azure.arm.billed)
    FAULTS[fault](azure)
    try:
        ((node_type, name),) = azure.result(jobs.begin("places", count=1))
        azure.wait_until_empty()
    finally:
        azure.arm.launch_polls, azure.arm.lost_answers, azure.arm.is_loud = 1, 0, False
    assert node_type == SPOT
    assert azure.arm.failures == []
    assert azure.arm.billed.keys() - before == {name}


def scale_to_nothing(azure: Azure) -> None:
    """`sunspot scale`."""
    size = Size(minimum=0, maximum=0)
    scaling.scale(azure.seen_by_its_user(), {SPOT: size}, silent, Endpoints())


def remove(azure: Azure) -> None:
    """`sunspot up` without the group, before Pulumi's engine deletes its sets."""
    leaving.drain("test", azure.seen_by_its_user, [SPOT, ON_DEMAND], silent, Endpoints())


@pytest.mark.parametrize("end", [scale_to_nothing, remove])
def test_a_group_that_goes_finishes_its_work(
    azure: Azure, jobs: Jobs, end: Callable[[Azure], None], monkeypatch: pytest.MonkeyPatch
):
    for module in (scaling, draining):
        monkeypatch.setattr(module, "arm_of", azure.arm_of_its_user)
        monkeypatch.setattr(module, "POLL_S", 0.5)
    monkeypatch.setattr(scaling, "alive", azure.alive)
    monkeypatch.setattr(draining.Workers, "nodes", azure.nodes)
    # No machine of a test before this one, which might get the work.
    azure.wait_until_empty()
    counted = azure.folder / f"counted-{end.__name__}.json"
    work = jobs.begin("counter", file=str(counted), steps=12, seconds=0.5)
    wait_for("the work to run", counted.exists, DEADLINE_S, seen=azure.logs)
    (name,) = azure.workers()
    try:
        end(azure)
        # Elsewhere it could not go on: the group may have no machine now.
        assert azure.result(work) == 12
        azure.wait_until_empty()
        wait_for("its record", lambda: "drained" in azure.kinds(name), DEADLINE_S, seen=azure.logs)
        assert azure.kinds(name) == ["launched", "joined", "drained"]
        assert azure.drained(name)
        waiting = jobs.begin("places", count=1)
    finally:
        azure.edit(CLUSTER)
    ((node_type, _),) = azure.result(waiting)
    assert node_type == SPOT


# The minutes of an hour's trace, each a second here: what comes when, and what it gives.
TRACE: tuple[tuple[float, str, dict[str, Any], Any], ...] = (
    (0, "squares", {"count": 8, "seconds": 1.5}, 140),
    (3, "counter", {"steps": 8, "seconds": 0.5}, 8),
    (10, "fails", {}, PURPOSE),
    (18, "squares", {"count": 10, "seconds": 1.0}, 285),
    (30, "spread", {"count": MOST}, None),
    (32, "counter", {"steps": 8, "seconds": 0.5}, 8),
    (44, "squares", {"count": 12, "seconds": 1.5}, 506),
)
# When a machine is evicted, and whether Azure says so before.
EVICTIONS = ((8, True), (20, False), (34, True), (47, False))
NOTICE_S, MARGIN_S = 30.0, 10.0


def evict(azure: Azure, name: str, *, announced: bool) -> None:
    """Azure takes a machine, by its policy "Delete"; an announced one has a watcher."""
    if announced:
        imds = FakeAzure(name=name)
        module = [sys.executable, "-m", "sunspot.node.azure.eviction"]
        flags = [f"--name={name}", f"--group={SPOT}", f"--margin={MARGIN_S}"]
        with serving_imds(imds):
            watcher = subprocess.Popen(
                [*module, *flags, f"--imds={imds.url}"], env=azure.environment("watcher", SPOT)
            )
            try:
                wait_for("a first question", imds.polls, DEADLINE_S)
                imds.announce("Preempt", NOTICE_S)
                wait_for("the acknowledgement", lambda: imds.acknowledged, DEADLINE_S)
            finally:
                watcher.kill()
                watcher.wait()
    if vm := azure.arm.vms.get(name):  # otherwise Ray has given it back meanwhile
        azure.arm.evict(vm)


def test_a_day_in_the_life(azure: Azure, jobs: Jobs):
    """Mixed jobs and an eviction every few minutes: each result, no machine left, and the bill."""
    before = set(azure.arm.billed)
    results: list[tuple[Future[Any], Any]] = []
    evicted: dict[str, bool] = {}

    def begin(number: int) -> None:
        _, kind, arguments, expected = TRACE[number]
        more = {"file": str(azure.folder / f"counted-{number}.json")} if kind == "counter" else {}
        results.append((jobs.begin(kind, **arguments, **more), expected))

    def take(*, announced: bool) -> None:
        name = wait_for("a member", azure.members, DEADLINE_S, seen=azure.logs)[-1]
        evicted[name] = announced
        evict(azure, name, announced=announced)

    trace = [(when, partial(begin, number)) for number, (when, *_) in enumerate(TRACE)]
    trace += [(when, partial(take, announced=announced)) for when, announced in EVICTIONS]
    began = time.monotonic()
    for when, happens in sorted(trace, key=lambda one: one[0]):
        time.sleep(max(0.0, began + when - time.monotonic()))
        happens()
    # One that fails is a program of its own too: its exit code says so.
    with azure.driver() as own:
        told, _ = own.communicate(json.dumps({"id": "own", "kind": "fails"}), timeout=DEADLINE_S)
    assert (own.returncode, PURPOSE in told) == (1, True)
    for job, expected in results:
        if expected == PURPOSE:
            with pytest.raises(RuntimeError, match=PURPOSE):
                job.result(DEADLINE_S)
        else:
            assert azure.result(job) == expected or expected is None
    azure.wait_until_empty()
    assert len(evicted) == len(EVICTIONS)
    for name in azure.arm.billed.keys() - before:
        began_as, *between, end = azure.kinds(name)
        assert (began_as, end in ENDS[evicted.get(name)]) == ("launched", True), azure.kinds(name)
        assert between in (["joined"], [])
    check_bill(azure)


# How a machine's story ends that was evicted with a notice, without one (it is lost, unless Ray has
# seen its node end before its machine is gone, and gives that back), or not at all.
ENDS = {True: {"evicted"}, False: {"lost", "drained"}, None: {"drained"}}
# What is told at a tick of the autoscaler's may be told late on a busy machine.
LATE_S = 5.0


def check_bill(azure: Azure) -> None:
    """The cost so far is that of the machines' times as Azure has them, to a tick."""
    wait_for("a last list", lambda: all(one.unlisted for one in azure.arm.billed.values()))
    lives = ledger.lives(azure.events())
    assert sorted(life.node for life in lives) == sorted(azure.arm.billed)
    seconds: dict[str, float] = {}
    for life in lives:
        bill = azure.arm.billed[life.node]
        assert bill.listed is not None
        assert bill.ended is not None
        assert bill.unlisted is not None
        assert life.end is not None
        assert bill.begun <= life.begin <= bill.listed + LATE_S
        assert bill.ended - LATE_S <= life.end <= bill.unlisted + LATE_S
        seconds[life.group] = seconds.get(life.group, 0.0) + life.end - life.begin
    prices = parse(azure.arm.imds.user_data).prices
    spent = ledger.spent(lives, group_status.markets(STACK), prices, time.time())
    assert spent["spot"].usd == pytest.approx(seconds[SPOT] / 3600 * prices[SPOT])
    assert spent["spot"].price_unknown == ()


def test_a_machine_whose_deletion_azure_forgets_is_deleted_again(azure: Azure, jobs: Jobs):
    ((_, name),) = azure.result(jobs.begin("places", count=1))
    azure.arm.lost_deletions.add(name)
    azure.wait_until_empty()
    assert azure.arm.lost_deletions == set()
    assert azure.kinds(name) == ["launched", "joined", "drained"]


def test_where_azure_grants_a_part_the_rest_comes_from_on_demand(azure: Azure, jobs: Jobs):
    azure.arm.granted = 1
    azure.arm.refusals[f"{PREFIX}{SPOT}"] = [(202, "AllocationFailed", "one only")]
    places = azure.result(jobs.begin("spread", count=2))
    assert {node_type for node_type, _ in places} == {SPOT, ON_DEMAND}


def test_where_spot_is_refused_the_task_gets_an_on_demand_machine(azure: Azure, jobs: Jobs):
    azure.arm.granted = 0
    azure.arm.refusals[f"{PREFIX}{SPOT}"] = [
        (202, "AllocationFailed", "no spot capacity") for _ in range(100)
    ]
    ((node_type, name),) = azure.result(jobs.begin("places", count=1))
    assert node_type == ON_DEMAND
    assert name.startswith(f"{PREFIX}{ON_DEMAND}_")
    assert azure.arm.sets[f"{PREFIX}{SPOT}"].capacity == 0
    assert azure.arm.vms[HEAD].state == "Succeeded"


def test_a_new_group_works_on_the_same_head_and_a_removed_one_goes(azure: Azure, jobs: Jobs):
    azure.arm.refusals.clear()
    waiting = jobs.begin("places", count=1)
    group = {**CLUSTER["scaling_groups"][0], "name": MORE, "market": "spot"}
    # The spot group is still cooling down, and its twin is about to go.
    azure.edit({**CLUSTER, "scaling_groups": [group]})
    azure.result(waiting)
    ((node_type, name),) = azure.result(jobs.begin("places", count=1))
    assert (node_type, name.rpartition("_")[0]) == (MORE, f"{PREFIX}{MORE}")
    wait_for(
        "the removed groups to be empty",
        lambda: all(one.startswith(f"{PREFIX}{MORE}") for one in azure.workers()),
        DEADLINE_S,
    )


def sets(node_type: str) -> str:
    return f"{SCALE_SETS}/{PREFIX}{node_type}"
