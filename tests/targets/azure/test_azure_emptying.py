"""Scaling a stack's sets to zero before it is destroyed, against a stand-in for ARM."""

import json
from types import SimpleNamespace

import pytest
from azure_model.access_tokens import MANAGEMENT, access_token
from azure_model.arm import HEAD, SCALE_SETS, VIRTUAL_MACHINES, Vm, serving
from azure_model.http_service import Reply
from azure_model.pulumi_state import exported, group, resource
from azure_stacks import run

from sunspot.errors import SunspotError
from sunspot.targets.azure import emptying
from sunspot.targets.azure.automation import parse_state
from sunspot.targets.azure.credentials import Endpoints

GPU, FIXED = "sunspot-test-gpu", "sunspot-test-fixed"


@pytest.fixture
def arm():
    with serving() as made:
        made.add(GPU, FIXED)
        yield made


@pytest.fixture
def az(tmp_path, monkeypatch):
    """The Azure CLI, which is logged in."""
    for name in ("ARM_CLIENT_ID", "ARM_CLIENT_SECRET", "ARM_TENANT_ID"):
        monkeypatch.delenv(name, raising=False)
    tool = tmp_path / "az"
    token = json.dumps({"accessToken": access_token(MANAGEMENT)})
    tool.write_text(f"#!/bin/sh\n[ $2 = get-access-token ] && echo '{token}'\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    return tool


def state():
    machine = resource("azure-native:compute:VirtualMachine", f"{VIRTUAL_MACHINES}/{HEAD}")
    sets = [resource(emptying.SCALE_SET_TYPE, f"{SCALE_SETS}/{name}") for name in (GPU, FIXED)]
    return parse_state(exported(group(), machine, *sets))


def empty(arm):
    steps = []
    emptying.empty(state(), steps.append, Endpoints(management=arm.url))
    return steps


@pytest.mark.usefixtures("az")
def test_the_head_is_stopped_and_every_set_scaled_to_zero(arm):
    for number in range(3):
        arm.vms[f"{GPU}_{number}"] = Vm(f"{GPU}_{number}", GPU, "Succeeded")
    arm.sets[GPU].capacity = 3
    empty(arm)
    assert set(arm.vms) == {HEAD}
    assert arm.vms[HEAD].state == "Stopped"
    assert arm.sets[GPU].capacity == 0
    changes = [path.rpartition("/")[2] for method, path in arm.requests if method != "GET"]
    assert changes == ["powerOff", GPU]


@pytest.mark.usefixtures("az")
def test_without_workers_nothing_is_changed(arm):
    assert empty(arm) == []
    assert {method for method, _ in arm.requests} == {"GET"}


def test_what_cannot_be_scaled_is_told_and_does_not_stop_the_destruction(arm, az):
    forbidden = {"error": {"code": "AuthorizationFailed", "message": "no"}}
    arm.failures = [Reply(403, forbidden)]
    assert "AuthorizationFailed" in empty(arm)[0]
    az.write_text("#!/bin/sh\necho 'Please run az login' >&2; exit 1\n")
    assert "az login" in empty(arm)[0]
    az.unlink()
    assert "no Azure CLI" in empty(arm)[0]


@pytest.mark.usefixtures("az")
@pytest.mark.parametrize("answer", [Reply(200, []), Reply(200, None), Reply(200, "<html>")])
def test_an_answer_in_no_shape_does_not_stop_the_destruction(arm, answer):
    arm.failures = [answer]
    assert "destroying all the same" in empty(arm)[0]


def test_an_az_that_prints_no_json_does_not_stop_the_destruction(arm, az):
    az.write_text("#!/bin/sh\necho upgrade me\n")
    assert "destroying all the same" in empty(arm)[0]


@pytest.mark.usefixtures("az")
def test_what_somebody_has_deleted_is_left_out(arm):
    arm.sets.pop(FIXED)
    arm.vms[f"{GPU}_0"] = Vm(f"{GPU}_0", GPU, "Succeeded")
    arm.sets[GPU].capacity = 1
    empty(arm)
    assert set(arm.vms) == {HEAD}


def test_down_scales_to_zero_before_it_destroys(place, monkeypatch):
    calls = place.fake.calls
    monkeypatch.setattr(emptying, "empty", lambda *_: calls.append("empty"))
    place.fake.now = (group(), resource("azure-native:compute:VirtualMachine", "/x/head"))
    assert run("down", "x").exit_code == 0
    assert [one for one in calls if one.startswith(("empty", "destroy"))] == [
        "empty",
        "destroy False",
    ]


@pytest.mark.parametrize("end", [KeyboardInterrupt, SunspotError("pulumi said: no")])
def test_a_down_that_ends_early_says_how_to_go_on_or_to_keep_the_cluster(place, monkeypatch, end):
    def stop(*_):
        raise end

    monkeypatch.setattr(emptying, "empty", stop)
    place.fake.now = (group(), resource("azure-native:compute:VirtualMachine", "/x/head"))
    result = run("down", "x")
    assert result.exit_code == (130 if end is KeyboardInterrupt else 1)
    assert "az vm start --ids /x/head" in result.stderr
    assert "sunspot down x" in result.stderr


def test_a_stack_without_scale_sets_needs_no_login():
    empty_state = SimpleNamespace(resources=())
    emptying.empty(empty_state, pytest.fail)  # type: ignore[arg-type]
