"""`sunspot evict` on Azure, against a stand-in for ARM: 204, and the eviction comes later."""

import pytest
from azure_model.arm import GROUP, HEAD, VIRTUAL_MACHINES, Vm, serving
from azure_model.http_service import Reply
from azure_model.resource_ids import group_id
from azure_stacks import run, up
from ssh_server import needs_sshd
from waiting import wait_for

from sunspot.errors import SunspotError, UsageError
from sunspot.targets.azure import evicting
from sunspot.targets.azure.credentials import Endpoints
from sunspot.targets.protocol import NodeStatus

pytestmark = pytest.mark.usefixtures("az")

SPOT = "sunspot-test-gpu_00000001"


@pytest.fixture
def arm():
    with serving() as made:
        made.add("sunspot-test-gpu")
        made.vms[SPOT] = Vm(SPOT, "sunspot-test-gpu", "Succeeded")
        yield made


def node(name, market="spot"):
    return NodeStatus(
        name=name, group="gpu", market=market, state="up", cpus=4, gpus=1, memory_gb=28
    )


def evict(arm, one):
    return evicting.evict(group_id(GROUP), one, lambda _: None, Endpoints(management=arm.url))


def test_azure_is_asked_and_the_machine_goes_later(arm):
    arm.on_eviction = arm.evict
    told = evict(arm, node(SPOT))
    assert ("POST", f"{VIRTUAL_MACHINES}/{SPOT}/simulateEviction") in arm.requests
    assert "within 30 minutes" in told
    wait_for("the eviction", lambda: SPOT not in arm.vms)


def test_a_worker_that_is_not_on_spot_is_refused_without_asking(arm):
    with pytest.raises(UsageError, match=rf"'{SPOT}' is on-demand; Azure evicts only spot"):
        evict(arm, node(SPOT, "on-demand"))
    assert arm.requests == []


@pytest.mark.parametrize(
    ("name", "code"), [(HEAD, "OperationNotAllowed"), ("gone_1", "ResourceNotFound")]
)
def test_a_refusal_of_azure_is_one_message(arm, name, code):
    with pytest.raises(SunspotError, match=rf"Azure does not evict '{name}': .*{code}"):
        evict(arm, node(name))


def test_a_missing_right_is_one_message(arm):
    body = {"error": {"code": "AuthorizationFailed", "message": "no right"}}
    arm.failures = [Reply(403, body)]
    with pytest.raises(SunspotError, match=r"does not evict .*AuthorizationFailed"):
        evict(arm, node(SPOT))


@needs_sshd
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("vm_a", "--notice=30"), "leave --notice out"),
        (("sunspot-x-head",), "is the head of 'x'; give one of its workers: vm_a, vm_b"),
        (("nobody",), "has no node 'nobody'; it has: sunspot-x-head, vm_a, vm_b"),
    ],
)
def test_what_cannot_be_evicted_is_refused_before_azure_is_asked(place, arguments, said):
    up(place)
    result = run("evict", "x", *arguments)
    assert result.exit_code == 2, result.output
    assert said in " ".join(result.stderr.split())
