"""Azure's scale sets as machines of Ray's autoscaler, against a stand-in for ARM."""

from concurrent.futures import ThreadPoolExecutor

import pytest
from azure_model.arm import HEAD, NICS, Vm
from azure_model.arm_errors import denied
from azure_model.http_service import Reply
from scale_set_machines import GPU, TWIN, ids

from sunspot.node.azure.arm import ArmError
from sunspot.node.machines import LaunchDeniedError, LaunchRefusedError

QUOTA = "Operation could not be completed as it results in exceeding approved quota"
REFUSALS = [
    (409, "SkuNotAvailable", "not available in uksouth"),
    (409, "OperationNotAllowed", QUOTA),
    (409, "AzureSpotFeatureNotEnabledForSubscription", "a free trial"),
    (409, "AzureSpotIsNotSupportedForThisVMSize", "never sold as spot"),
    (409, "SpotPriceGreaterThanProvidedMaxPrice", "the price rose"),
    (202, "AllocationFailed", "no capacity"),
    (202, "OverconstrainedAllocationRequest", "no capacity for spot"),
    (202, "SomethingNew", "nobody knows this one yet"),
]


# Listing


def test_the_head_is_listed_by_its_name(machines):
    (head,) = machines.list()
    assert (head.id, head.node_type, head.is_head, head.running) == (HEAD, "head", True, True)


def test_machines_come_from_all_pages_with_their_types(machines, arm):
    machines.create("gpu", 5)
    machines.create("gpu-on-demand", 1)
    found = machines.list()
    assert len(found) == 7
    assert len(ids(machines)) == 5
    assert ids(machines, "gpu-on-demand") == [name for name in arm.vms if name.startswith(TWIN)]
    assert all(machine.running for machine in found)


@pytest.mark.parametrize(
    ("state", "listed", "running"),
    [
        ("Creating", True, False),
        ("Updating", True, True),
        ("Succeeded", True, True),
        ("Failed", True, False),
        ("Deleting", False, False),
    ],
)
def test_states_of_azure(machines, arm, state, listed, running):
    arm.vms["x"] = Vm(f"{GPU}_0000abcd", GPU, state)
    arm.vms["foreign"] = Vm("other_0000abcd", "other", "Succeeded")
    found = [machine for machine in machines.list() if not machine.is_head]
    assert [(m.id, m.running) for m in found] == ([(f"{GPU}_0000abcd", running)] if listed else [])


def test_a_machine_that_is_known_is_not_asked_for_again(machines, arm):
    machines.create("gpu", 1)
    (name,) = ids(machines)
    before = len(arm.requests)
    assert machines.find(name).running
    assert machines.find(HEAD).is_head
    assert len(arm.requests) == before
    assert machines.find("nobody") is None


# Growing


def test_growing_raises_the_capacity_and_returns_when_the_machines_are_made(machines, arm):
    machines.create("gpu", 2)
    assert arm.sets[GPU].capacity == 2
    assert arm.sets[TWIN].capacity == 0
    assert {vm.state for vm in arm.vms.values()} == {"Succeeded"}


def test_growing_from_several_threads_loses_no_machine(machines, arm):
    with ThreadPoolExecutor(6) as pool:
        list(pool.map(lambda n: machines.create("gpu" if n % 2 else "gpu-on-demand", 1), range(6)))
    assert (arm.sets[GPU].capacity, arm.sets[TWIN].capacity) == (3, 3)
    assert len(ids(machines)) == 3


def test_a_concurrent_change_is_not_overwritten(machines, arm):
    def evict_one(scale_set):
        arm.before_patch = lambda _: None
        scale_set.capacity -= 1
        scale_set.revision += 1

    machines.create("gpu", 2)
    arm.vms.pop(ids(machines)[0])
    arm.before_patch = evict_one
    machines.create("gpu", 1)
    assert arm.sets[GPU].capacity == 2
    assert len(ids(machines)) == 2


def test_a_set_that_is_busy_is_asked_again(machines, arm):
    arm.refusals[GPU] = [(409, "Conflict", "another operation is in progress")]
    machines.create("gpu", 1)
    assert arm.sets[GPU].capacity == 1


def test_a_launch_that_cannot_be_watched_has_not_failed(machines, arm):
    forbidden = Reply(403, {"error": {"code": "AuthorizationFailed", "message": "no"}})
    arm.before_patch = lambda _: arm.failures.append(forbidden)
    machines.create("gpu", 1)
    assert len(ids(machines)) == 1


@pytest.mark.parametrize("refusal", REFUSALS, ids=lambda r: f"{r[0]}-{r[1]}")
def test_a_refused_launch_says_so_and_leaves_nothing(machines, arm, refusal):
    machines.create("gpu", 1)
    kept = ids(machines)
    arm.refusals[GPU] = [refusal]
    with pytest.raises(LaunchRefusedError, match=refusal[1]):
        machines.create("gpu", 2)
    assert ids(machines) == kept
    arm.wait_for_loss(*[name for name in arm.vms if name not in {HEAD, *kept}])
    assert arm.sets[GPU].capacity == 1
    machines.create("gpu", 1)
    assert len(ids(machines)) == 2


@pytest.mark.parametrize(
    ("status", "code", "message"),
    [
        (400, "InvalidParameter", "nonsense"),
        (409, "OperationNotAllowed", "the set is being deleted"),
    ],
)
def test_an_error_that_is_not_a_refusal_is_raised_as_it_is(
    machines, arm, status, code, message, monkeypatch
):
    monkeypatch.setattr("sunspot.node.azure.scale_sets.CHANGE_TIMEOUT_S", 0.0)
    arm.refusals[GPU] = [(status, code, message)]
    with pytest.raises(ArmError, match=message):
        machines.create("gpu", 1)
    assert arm.sets[GPU].capacity == 0


# A right that is missing


NO_RIGHT = denied("Microsoft.Network/networkInterfaces/write", NICS).body["error"]
DENIALS = [
    (403, *NO_RIGHT.values()),
    (202, *NO_RIGHT.values()),  # inside the operation
    (202, "authorizationfailed", NO_RIGHT["message"]),
    (403, "RequestDisallowedByPolicy", "Resource 'x' was disallowed by policy."),
    (202, "VMScaleSetUpdateFailed", NO_RIGHT["message"]),
    (202, "RequestDisallowedByPolicy", "Resource 'x' was disallowed by policy."),
    (409, "ScopeLocked", "cannot perform write operation because following scope(s) are locked"),
    (409, "ReadOnlyDisabledSubscription", "The subscription is disabled"),
]


@pytest.mark.parametrize("denial", DENIALS, ids=lambda d: f"{d[0]}-{d[1]}")
def test_a_missing_right_is_not_a_shortage_of_machines(machines, arm, denial):
    arm.refusals[GPU] = [denial]
    with pytest.raises(LaunchDeniedError, match=denial[1]) as caught:
        machines.create("gpu", 1)
    if denial[2] == NO_RIGHT["message"]:
        assert f"lacks the right Microsoft.Network/networkInterfaces/write at {NICS}" in str(
            caught.value
        )
    assert ids(machines) == []
    assert arm.sets[GPU].capacity == 0


def test_what_is_forbidden_to_everybody_is_not_called_a_missing_role(machines, arm):
    arm.refusals[GPU] = [(403, "RequestDisallowedByPolicy", "disallowed by policy 'no GPUs'")]
    with pytest.raises(LaunchDeniedError, match="no GPUs") as caught:
        machines.create("gpu", 1)
    assert "head's identity" not in str(caught.value)


def test_the_right_on_a_linked_resource_is_the_one_that_is_named(machines, arm):
    action, subnet = "Microsoft.Network/virtualNetworks/subnets/join/action", "/subscriptions/s/n"
    error = denied(action, subnet, linked="/subscriptions/s/set").body["error"]
    arm.refusals[GPU] = [(403, error["code"], error["message"])]
    with pytest.raises(LaunchDeniedError, match=f"lacks the right {action} at {subnet};"):
        machines.create("gpu", 1)


# A newer change of the set


@pytest.fixture
def impatient(monkeypatch):
    monkeypatch.setattr("sunspot.node.azure.scale_sets.CHANGE_PAUSE_S", 0.02)


def superseded(arm, **change):
    """A newer change comes while the first operation is asked for."""

    def once():
        arm.on_poll = lambda: None
        arm.preempt(GPU, **change)

    arm.on_poll = once


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("late", [False, True])
def test_a_launch_that_a_newer_change_superseded_is_read_again_and_not_refused(machines, arm, late):
    superseded(arm, late=late)
    machines.create("gpu", 2)
    assert len(ids(machines)) == 2
    assert arm.sets[GPU].capacity == 2
    assert "PATCH" not in [method for method, _ in arm.requests[4:]]  # nothing was tidied


@pytest.mark.usefixtures("impatient")
def test_a_superseded_launch_without_its_machines_is_no_refusal_either(machines, arm):
    superseded(arm, capacity=0)
    with pytest.raises(ArmError, match="0 of 2 machines came"):
        machines.create("gpu", 2)
    machines.create("gpu", 2)
    assert len(ids(machines)) == 2


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize(
    "error",
    [
        None,
        {"code": "operationpreempted", "message": "in another case"},
        {"code": "Conflict", "message": "Preempted by a more recent operation"},
    ],
    ids=str,
)
def test_every_way_to_say_superseded(machines, arm, error):
    def once():
        arm.on_poll = lambda: None
        arm.preempt(GPU)
        for operation in arm.operations.values():
            operation.error = error or {}

    arm.on_poll = once
    machines.create("gpu", 1)
    assert len(ids(machines)) == 1


def test_a_canceled_operation_with_a_refusal_is_one(machines, arm):
    def once():
        arm.on_poll = lambda: None
        for operation in arm.operations.values():
            operation.status = "Canceled"

    arm.refusals[GPU] = [(202, "AllocationFailed", "no capacity")]
    arm.on_poll = once
    with pytest.raises(LaunchRefusedError, match="AllocationFailed"):
        machines.create("gpu", 1)


def test_names_of_sets_are_compared_without_case(machines, arm):
    arm.vms["x"] = Vm(f"{GPU}_0000abcd", GPU.upper(), "Succeeded")
    assert ids(machines) == [f"{GPU}_0000abcd"]


def test_an_unknown_type_is_an_error(machines, arm):
    with pytest.raises(KeyError, match="nonsense"):
        machines.create("nonsense", 1)
    assert [method for method, _ in arm.requests if method != "GET"] == []


# Giving back


def test_only_the_named_machine_is_terminated(machines, arm):
    machines.create("gpu", 3)
    first, second, third = ids(machines)
    machines.terminate(second)
    assert ids(machines) == [first, third]
    arm.wait_for_loss(second)
    assert arm.sets[GPU].capacity == 2
    machines.create("gpu", 1)
    assert second not in ids(machines)


def test_the_set_of_a_machine_is_what_azure_says_and_not_part_of_its_name(machines, arm):
    arm.sets[GPU].capacity = 1
    arm.vms["gpu1"] = Vm("gpu1", GPU, "Succeeded")
    machines.terminate("gpu1")
    arm.wait_for_loss("gpu1")
    assert arm.sets[GPU].capacity == 0


def test_terminating_twice_is_not_an_error(machines, arm):
    machines.create("gpu", 1)
    (name,) = ids(machines)
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(machines.terminate, [name] * 8))
    arm.wait_for_loss(name)
    machines.terminate(name)
    machines.terminate(f"{GPU}_nobody00")
    arm.sets.pop(GPU)
    machines.terminate(name)  # 404: not even the set is there


def test_a_deletion_that_a_newer_change_superseded_is_repeated(machines, arm):
    machines.create("gpu", 2)
    name, kept = ids(machines)
    arm.lost_deletions = {name}
    machines.terminate(name)
    assert ids(machines) == [name, kept]
    assert ids(machines) == [name, kept]  # Azure gets its time
    machines._delete_again_s = 0.0
    machines.list()
    arm.wait_for_loss(name)
    assert ids(machines) == [kept]


def test_deletions_are_repeated_by_one_request_for_a_set(machines, arm):
    machines.create("gpu", 3)
    names = ids(machines)
    arm.lost_deletions = set(names)
    for name in names:
        machines.terminate(name)
    machines._delete_again_s = 0.0
    before = len(arm.requests)
    machines.list()
    assert [method for method, _ in arm.requests[before:]].count("POST") == 1
    arm.wait_for_loss(*names)


def test_the_head_and_unknown_machines_are_never_deleted(machines, arm):
    for name in (HEAD, "", "other_0000abcd", "nobody"):
        machines.terminate(name)
    assert [method for method, _ in arm.requests if method != "GET"] == []


def test_a_deletion_that_is_refused_is_told(machines, arm, monkeypatch):
    monkeypatch.setattr("sunspot.node.azure.scale_sets.CHANGE_TIMEOUT_S", 0.0)
    machines.create("gpu", 1)
    (name,) = ids(machines)
    arm.failures = [Reply(409, {"error": {"code": "ScopeLocked", "message": "a lock"}})]
    with pytest.raises(ArmError, match="ScopeLocked"):
        machines.terminate(name)
