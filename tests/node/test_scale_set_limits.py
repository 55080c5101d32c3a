"""What a scale set never gets: more than its maximum, and the same machines twice."""

import contextlib
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from azure_model.compute import Vm
from azure_model.http_service import Reply
from scale_set_machines import GPU, SETS, TWIN, ids, machines_of
from waiting import wait_for

from sunspot.node.azure import scale_sets
from sunspot.node.machines import LaunchDeniedError, LaunchRefusedError


def test_a_change_whose_answer_was_lost_is_not_made_twice(machines, arm):
    machines.create("gpu", 1)
    arm.lost_answers = 1
    machines.create("gpu", 2)
    assert arm.sets[GPU].capacity == 3
    assert len(ids(machines)) == 3
    assert {vm.state for vm in arm.vms.values()} == {"Succeeded"}


def test_a_lost_answer_is_seen_when_arm_stays_silent(arm):
    impatient = machines_of(arm, patience_s=0.0)
    arm.lost_answers = 1
    impatient.create("gpu", 2)
    assert arm.sets[GPU].capacity == 2
    assert len(ids(impatient)) == 2


def test_machines_that_fail_after_a_lost_answer_are_refused_and_go(machines, arm):
    arm.lost_answers = 1
    arm.refusals[GPU] = [(202, "AllocationFailed", "no capacity")]
    with pytest.raises(LaunchRefusedError, match="0 of 2 machines came"):
        machines.create("gpu", 2)
    assert arm.sets[GPU].capacity == 0
    assert ids(machines) == []


def test_a_change_that_was_not_made_before_its_answer_was_lost_is_made(machines, arm):
    real, lost = arm._of_scale_set, []

    def lose_first(request):
        if request.method == "PATCH" and not lost:
            lost.append(request)
            arm.sets[GPU].capacity -= 1  # one is evicted meanwhile
            arm.sets[GPU].revision += 1
            return Reply(503)
        return real(request)

    machines.create("gpu", 2)
    arm.vms.pop(ids(machines)[0])
    arm._of_scale_set = lose_first
    machines.create("gpu", 1)
    assert lost
    assert arm.sets[GPU].capacity == 2


def test_a_set_never_gets_more_than_its_maximum(machines, arm, caplog):
    machines.create("gpu", 3)
    machines.create("gpu", 4)
    assert arm.sets[GPU].capacity == 5
    assert "over its maximum" in caplog.text
    with pytest.raises(LaunchDeniedError, match="has its maximum of 5 machines"):
        machines.create("gpu", 1)
    machines.create("gpu-on-demand", 7)
    assert (arm.sets[GPU].capacity, arm.sets[TWIN].capacity) == (5, 7)


def test_machines_that_azure_has_not_listed_yet_count(machines, arm):
    arm.sets[GPU].capacity, arm.sets[GPU].state = 5, "Updating"
    with pytest.raises(LaunchDeniedError):
        machines.create("gpu", 1)
    assert arm.sets[GPU].capacity == 5


@pytest.fixture
def group(machines):
    """The machines of both sets, whose group has a maximum of 5."""
    machines.follow(
        {
            "scale_sets": SETS,
            "maximums": dict.fromkeys(SETS, 5),
            "minimums": {},
            "twins": {"gpu": "gpu-on-demand"},
            "fixed": [],
        }
    )
    return machines


def test_both_markets_that_grow_at_once_have_one_maximum(group, arm, monkeypatch):
    real, listed = group._request, threading.Barrier(2)

    def request(*given):
        with contextlib.suppress(threading.BrokenBarrierError):
            listed.wait(0.3)
        return real(*given)

    monkeypatch.setattr(group, "_request", request)
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(group.create, SETS, (3, 3)))
    assert arm.sets[GPU].capacity + arm.sets[TWIN].capacity == 5


@pytest.mark.parametrize(("grows", "other"), [("gpu", TWIN), ("gpu-on-demand", GPU)])
def test_machines_of_the_other_market_that_azure_has_not_listed_yet_count(group, arm, grows, other):
    arm.sets[other].capacity, arm.sets[other].state = 4, "Updating"
    group.create(grows, 3)
    assert len(ids(group, grows)) == 1
    # Capacity for which no machine came, and none will.
    arm.sets[other].state = "Succeeded"
    group.create(grows, 3)
    assert len(ids(group, grows)) == 4


def test_one_market_does_not_wait_for_the_machines_of_the_other(group, arm):
    arm.launch_polls = 10_000
    with ThreadPoolExecutor(1) as pool:
        slow = pool.submit(group.create, "gpu", 3)
        try:
            wait_for("the request", lambda: arm.operations)
            arm.launch_polls = 1
            group.create("gpu-on-demand", 1)
            assert not slow.done()
        finally:
            for operation in arm.operations.values():
                operation.polls = 0
        slow.result(timeout=20)


def test_capacity_for_which_no_machine_came_does_not_keep_a_set_from_growing(machines, arm):
    machines.create("gpu", 1)
    kept = ids(machines)
    arm.sets[GPU].capacity = 5
    machines.create("gpu", 2)
    # It is not given back: Azure would take the machine that runs.
    assert arm.sets[GPU].capacity == 7
    assert len(ids(machines)) == 3
    assert set(kept) <= set(ids(machines))
    machines.create("gpu", 4)
    assert len(ids(machines)) == 5


def test_a_refused_launch_takes_no_machine_that_runs(machines, arm):
    machines.create("gpu", 2)
    kept = ids(machines)
    # The operation fails, its capacity stays, and no machine of it is ever listed.
    real = arm._begin
    arm._begin = lambda scale_set: real(scale_set) and arm.vms.popitem()[1]
    arm.refusals[GPU] = [(202, "AllocationFailed", "no capacity")]
    with pytest.raises(LaunchRefusedError):
        machines.create("gpu", 2)
    assert ids(machines) == kept
    assert arm.sets[GPU].capacity == 4


def test_capacity_of_a_set_without_machines_is_given_back(machines, arm):
    real = arm._begin
    arm._begin = lambda scale_set: real(scale_set) and arm.vms.popitem()[1]
    arm.refusals[GPU] = [(202, "AllocationFailed", "no capacity")]
    with pytest.raises(LaunchRefusedError):
        machines.create("gpu", 2)
    assert arm.sets[GPU].capacity == 0


def test_a_long_list_is_not_asked_for_at_each_tick(machines, arm):
    """Azure counts its pages, of which the stand-in's have two machines."""
    for number in range(2 * scale_sets.PAGES_A_TICK + 1):
        arm.vms[f"{GPU}_{number:08x}"] = Vm(f"{GPU}_{number:08x}", GPU, "Succeeded")
    first = machines.list()
    asked = len(arm.requests)
    arm.vms.popitem()
    assert machines.list() == first
    assert len(arm.requests) == asked
    machines._list_again = 0.0  # seconds later
    assert len(machines.list()) == len(first) - 1


def test_a_short_list_is_asked_for_at_each_tick(machines, arm):
    machines.create("gpu", 2)
    machines.list()
    arm.vms.popitem()
    assert len(ids(machines)) == 1
