"""`sunspot suspend` and `sunspot start` on Azure, against a stand-in for ARM."""

import pytest
from azure_model.arm import GROUP, HEAD, SCALE_SETS, VIRTUAL_MACHINES, Vm, serving
from azure_model.http_service import Reply
from azure_model.resource_ids import group_id
from job_api import serving as serving_jobs

from sunspot.errors import SunspotError, SuspendedError, UsageError
from sunspot.ray.handle import ClusterHandle
from sunspot.targets.azure import suspending
from sunspot.targets.azure.credentials import Endpoints
from sunspot.targets.azure.suspending import Machines

pytestmark = pytest.mark.usefixtures("az")

GPU, FIXED = "sunspot-test-gpu", "sunspot-test-fixed"


@pytest.fixture
def arm():
    """A cluster of a head, two workers of a fixed group and one that the autoscaler started."""
    with serving() as made:
        made.add(GPU, FIXED)
        for name, count in ((GPU, 1), (FIXED, 2)):
            made.sets[name].capacity = count
            for number in range(count):
                made.vms[f"{name}_{number}"] = Vm(f"{name}_{number}", name, "Succeeded")
        yield made


def machines(arm):
    endpoints = Endpoints(management=arm.url)
    return Machines(stack="x", group_id=group_id(GROUP), head=HEAD, endpoints=endpoints)


@pytest.fixture
def handle(tmp_path):
    """The job API of the head, with a job that runs."""
    with serving_jobs() as (api, port):
        token = tmp_path / "token"
        token.write_text(api.token)
        api.add("ended", "SUCCEEDED")
        api.add("endless", "RUNNING", "RUNNING", "STOPPED")
        yield ClusterHandle(
            name="x",
            target="azure",
            head_address="10.60.0.4:6379",
            driver_address=None,
            job_address=f"http://127.0.0.1:{port}",
            token_path=token,
        )


def unreachable():
    raise SunspotError("no answer from SSH")


def suspended(arm, connect=unreachable):
    steps = []
    suspending.suspend(machines(arm), connect, steps.append)
    return steps


def changes(arm):
    return [path.rpartition("/")[2] for method, path in arm.requests if method != "GET"]


def test_jobs_stop_then_the_head_then_every_worker(arm, handle):
    steps = suspended(arm, lambda: handle)
    assert "stopping job endless" in steps
    assert arm.vms.keys() == {HEAD}
    assert arm.vms[HEAD].power == "deallocated"
    assert [arm.sets[name].capacity for name in (GPU, FIXED)] == [0, 0]
    # Before its workers: its autoscaler would replace them.
    assert changes(arm)[0] == "deallocate"
    assert suspending.is_suspended(machines(arm))


def test_a_head_that_does_not_answer_is_stopped_all_the_same(arm):
    assert any("no answer from SSH" in step for step in suspended(arm))
    assert arm.vms.keys() == {HEAD}


def test_what_is_suspended_is_not_suspended_again(arm):
    suspended(arm)
    with pytest.raises(SuspendedError, match="sunspot start x") as caught:
        suspended(arm)
    assert caught.value.exit_code == 2


def test_a_suspension_that_was_cut_short_goes_on(arm):
    machines(arm).deallocate()
    assert len(arm.vms) == 4
    suspended(arm, pytest.fail)
    assert arm.vms.keys() == {HEAD}


def test_an_interrupt_says_what_is_still_billed(arm):
    def interrupted(step):
        if "deleting" in step:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt) as caught:
        suspending.suspend(machines(arm), unreachable, interrupted)
    assert "sunspot suspend x" in caught.value.__notes__[0]


def test_start_brings_the_head_and_the_fixed_workers_back(arm):
    suspended(arm)
    suspending.start(machines(arm), {FIXED: 2}, lambda _: None)
    assert arm.vms[HEAD].power == "running"
    assert [arm.sets[name].capacity for name in (GPU, FIXED)] == [0, 2]
    assert sum(vm.scale_set == FIXED for vm in arm.vms.values()) == 2


def test_an_interrupt_while_the_head_boots_says_that_it_runs():
    def interrupted():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt) as caught, suspending.noting_that_it_may_run("x"):
        interrupted()
    assert "sunspot suspend x" in caught.value.__notes__[0]


def test_what_runs_cannot_be_started(arm):
    with pytest.raises(UsageError, match="not suspended") as caught:
        suspending.start(machines(arm), {}, lambda _: None)
    assert caught.value.exit_code == 2
    assert changes(arm) == []


def test_a_head_that_is_still_stopping_is_waited_for_by_the_user(arm):
    arm.vms[HEAD].power = "deallocating"
    assert suspending.is_suspended(machines(arm))
    with pytest.raises(SunspotError, match="in a minute"):
        suspending.start(machines(arm), {}, lambda _: None)


@pytest.mark.parametrize("code", ["AllocationFailed", "ZonalAllocationFailed", "SkuNotAvailable"])
def test_without_a_machine_for_the_head_it_stays_suspended(arm, code):
    suspended(arm)
    arm.refusals[HEAD] = [(202, code, "We do not have sufficient capacity.")]
    with pytest.raises(SunspotError, match=code) as caught:
        suspending.start(machines(arm), {FIXED: 2}, lambda _: None)
    assert "sunspot start x" in caught.value.__notes__[0]
    assert suspending.is_suspended(machines(arm))
    assert arm.vms.keys() == {HEAD}
    suspending.start(machines(arm), {FIXED: 2}, lambda _: None)
    assert arm.vms[HEAD].power == "running"


def test_a_missing_right_is_named(arm):
    denied = {
        "error": {
            "code": "AuthorizationFailed",
            "message": "The client 'c' with object id 'o' does not have authorization to perform "
            f"action 'Microsoft.Compute/virtualMachines/deallocate/action' over scope "
            f"'{VIRTUAL_MACHINES}/{HEAD}' or the scope is invalid.",
        }
    }
    found = machines(arm)
    arm.failures = [Reply(403, denied)]
    with pytest.raises(SunspotError, match="deallocate/action"):
        found.deallocate()


def test_a_login_that_has_expired_is_an_error(arm, az):
    az.write_text("#!/bin/sh\necho 'Please run az login' >&2; exit 1\n")
    with pytest.raises(SunspotError, match="az login"):
        suspended(arm)


@pytest.mark.parametrize("answer", [Reply(200, []), Reply(200, None), Reply(200, "<html>")])
def test_an_answer_in_no_shape_is_an_error(arm, answer):
    arm.failures = [answer]
    with pytest.raises(SunspotError):
        machines(arm).power()


def test_only_sets_that_differ_are_changed(arm):
    machines(arm).resize({FIXED: 2, GPU: 1, "unknown": 5}, pytest.fail)
    assert changes(arm) == []
    assert ("GET", SCALE_SETS) in arm.requests
