"""`sunspot scale` on Azure: ARM is a stand-in, the head follows what stands in its user data there.

What the head's own code makes of it: tests/node/test_live.py, tests/integration/.
"""

import functools
import threading
from dataclasses import replace

import pytest
from azure_clusters import FIXED_SET, GPU_SET, join, leave, settings
from azure_model.arm import HEAD, SCALE_SETS, VIRTUAL_MACHINES, Vm
from azure_model.http_service import Reply
from azure_model.http_service import serving as serving_http
from azure_stacks import declared, members, run
from ssh_server import needs_sshd

from sunspot.errors import SunspotError
from sunspot.node.azure import live
from sunspot.targets.azure import by_hand, head_settings, scaling
from sunspot.targets.azure.credentials import Endpoints
from sunspot.targets.scaling import Size

pytestmark = [needs_sshd, pytest.mark.usefixtures("az")]

PATCH = ("PATCH", f"{VIRTUAL_MACHINES}/{HEAD}")


def limits(arm, kind="gpu"):
    config = settings(arm).autoscaler
    assert config is not None
    here = config["available_node_types"][kind]
    assert config["provider"]["maximums"][kind] == here["max_workers"]
    return here["min_workers"], here["max_workers"]


def _as_the_autoscaler(cluster):
    """Keeps the members of `gpu` within the limits of the user data, at each look at them."""
    plain = cluster.arm.watched

    def watched(operation):
        low, high = limits(cluster.arm)
        names = [
            n["node_name"] for n in cluster.api.nodes if n["labels"]["ray.io/node-group"] == "gpu"
        ]
        for number in range(len(names), low):
            join(cluster, f"gpu_{number}", "gpu")
        for name in names[high:]:
            leave(cluster, name)
        return plain(operation)

    cluster.arm.watched = watched


def test_an_autoscaled_group_gets_its_limits_through_the_user_data(cluster):
    _as_the_autoscaler(cluster)
    result = run("scale", "x", "gpu=2:3")
    assert result.exit_code == 0, result.output
    assert "gpu of x has between 2 and 3 workers" in " ".join(result.stdout.split())
    assert limits(cluster.arm) == (2, 3)
    assert len(cluster.api.nodes) == len(members()) + 2
    assert cluster.target.sizes("x") == {"gpu": Size(minimum=2, maximum=3)}
    assert [one for one in cluster.arm.requests if one[0] != "GET"] == [PATCH]


def test_a_number_is_the_minimum_and_the_maximum_stays(cluster):
    _as_the_autoscaler(cluster)
    assert run("scale", "x", "gpu=1").exit_code == 0
    assert limits(cluster.arm) == (1, 4)
    assert run("scale", "x", "gpu=0:0").exit_code == 0
    assert limits(cluster.arm) == (0, 0)
    assert len(cluster.api.nodes) == len(members())
    assert run("scale", "x", "gpu=0:4").exit_code == 0  # as the file says: above the limit of now
    assert limits(cluster.arm) == (0, 4)


def test_an_autoscaled_group_shrinks_by_draining(cluster):
    """Ray's autoscaler would stop what is above a maximum, whatever runs there."""
    cluster.arm.add(GPU_SET)
    cluster.arm.sets[GPU_SET].capacity = 3
    for name in ("gpu_0", "gpu_1", "gpu_2"):
        cluster.arm.vms[name] = Vm(name, GPU_SET, "Succeeded")
    for name in ("gpu_0", "gpu_2"):
        join(cluster, name, "gpu")
    result = run("scale", "x", "gpu=0:1")
    assert result.exit_code == 0, result.output
    assert limits(cluster.arm) == (0, 1)
    told = cluster.drained.read_text()
    assert "sunspot.node.drain --seconds=60 gpu_1 gpu_2" in told
    cluster.arm.wait_for_loss("gpu_1", "gpu_2")
    assert cluster.arm.sets[GPU_SET].capacity == 1
    assert "gpu_0" in cluster.arm.vms
    assert run("scale", "x", "gpu=0:0").exit_code == 0
    assert "gpu_0" in cluster.drained.read_text()
    cluster.arm.wait_for_loss("gpu_0")


def test_the_same_size_again_is_news_for_the_head(cluster):
    assert run("scale", "x", "gpu=0:4").exit_code == 0
    first = settings(cluster.arm)
    assert run("scale", "x", "gpu=0:4").exit_code == 0
    assert settings(cluster.arm) != first
    assert settings(cluster.arm).autoscaler == first.autoscaler


def test_a_fixed_group_shrinks_by_draining_and_grows_again(cluster):
    assert run("scale", "x", "fixed=1").exit_code == 0
    told = cluster.drained.read_text()
    assert "sunspot.node.drain" in told
    assert "RAY_ADDRESS=10.60.0.4:6379" in told
    (gone,) = {"vm_a", "vm_b"} - cluster.arm.vms.keys()
    assert gone in told
    assert cluster.arm.sets[FIXED_SET].capacity == 1
    assert cluster.target.sizes("x") == {"fixed": Size(minimum=1)}
    assert run("scale", "x", "fixed=2").exit_code == 0
    assert cluster.arm.sets[FIXED_SET].capacity == 2
    assert ("PATCH", f"{SCALE_SETS}/{FIXED_SET}") in cluster.arm.requests


@pytest.mark.parametrize("change", ["gpu=5", "gpu=0:5", "fixed=3", "moon=1"])
def test_what_the_file_does_not_allow_is_refused_before_anything_changes(cluster, change):
    result = run("scale", "x", change)
    assert result.exit_code == 2
    assert change.partition("=")[0] in result.stderr
    assert cluster.arm.requests == []


def test_a_file_that_was_edited_since_does_not_allow_more_than_the_cluster_has(cluster):
    name, size = "gpu", Size(minimum=0, maximum=2)
    found = settings_of(cluster)
    (gpu,) = [one for one in declared().cluster.scaling_groups if one.name == name]
    smaller = by_hand._limited(found, gpu, (0, 2))
    cluster.arm.vms[HEAD].user_data = live.encoded(smaller.text())
    result = run("scale", "x", "gpu=3")
    assert result.exit_code == 2
    assert f"outside 0 to {size.maximum}" in " ".join(result.stderr.split())


def settings_of(cluster):
    return live.parse(live.decoded(cluster.arm.vms[HEAD].user_data))


def test_workers_that_do_not_join_leave_the_group_as_it_was(cluster, monkeypatch):
    before = settings_of(cluster)
    monkeypatch.setattr(scaling, "JOIN_TIMEOUT_S", 0.2)
    result = run("scale", "x", "gpu=1")
    assert result.exit_code == 1
    assert "0 of 1 workers of gpu joined" in " ".join(result.stderr.split())
    assert settings_of(cluster) == before


def test_machines_that_do_not_join_are_given_back(cluster, monkeypatch):
    assert run("scale", "x", "fixed=1").exit_code == 0
    before = settings_of(cluster)
    cluster.joins = False
    monkeypatch.setattr(scaling, "JOIN_TIMEOUT_S", 0.2)
    result = run("scale", "x", "fixed=2")
    assert result.exit_code == 1
    new = [name for name, vm in cluster.arm.vms.items() if name.startswith(FIXED_SET)]
    cluster.arm.wait_for_loss(*new)
    assert cluster.arm.sets[FIXED_SET].capacity == 1
    assert settings_of(cluster) == before


def test_a_refusal_of_azure_leaves_the_group_as_it_was(cluster):
    assert run("scale", "x", "fixed=1").exit_code == 0
    before = settings_of(cluster)
    cluster.arm.refusals[FIXED_SET] = [(409, "SkuNotAvailable", "no spot now")]
    result = run("scale", "x", "fixed=2")
    assert result.exit_code == 1
    assert "SkuNotAvailable" in result.stderr
    assert settings_of(cluster) == before


def test_ctrl_c_leaves_the_group_as_it_was(cluster, monkeypatch):
    before = settings_of(cluster)

    def interrupted(_):
        raise KeyboardInterrupt

    monkeypatch.setattr(scaling._Scaling, "_wait_until_members", interrupted)
    result = run("scale", "x", "gpu=1")
    assert result.exit_code == 130
    assert "gpu: with the limits of before" in " ".join(result.stderr.split())
    assert settings_of(cluster) == before


def test_somebody_elses_change_in_between_is_kept(cluster):
    _as_the_autoscaler(cluster)

    def change(vm):
        cluster.arm.before_change = lambda _: None
        config = settings_of(cluster)
        vm.change({"userData": live.encoded(replace(config, prices={"gpu": 0.5}).text())})

    cluster.arm.before_change = change
    assert run("scale", "x", "gpu=1").exit_code == 0
    assert limits(cluster.arm) == (1, 4)
    assert settings(cluster.arm).prices == {"gpu": 0.5}


def test_a_missing_role_is_named_with_its_scope_and_the_command(cluster):
    scope = f"{VIRTUAL_MACHINES}/{HEAD}"
    message = (
        "The client 'me' with object id 'o' does not have authorization to perform action "
        f"'Microsoft.Compute/virtualMachines/write' over scope '{scope}' or the scope is invalid."
    )
    told = {"error": {"code": "AuthorizationFailed", "message": message}}

    plain = cluster.arm._right
    cluster.arm._right = lambda request: (
        Reply(403, told) if request.method == "PATCH" else plain(request)
    )
    result = run("scale", "x", "gpu=1")
    text = " ".join(result.stderr.split())
    assert result.exit_code == 1
    assert "Contributor" in text
    assert scope in text.replace(" ", "") or scope in text
    assert "az role assignment create" in text


def test_without_a_login_nothing_changes(cluster, az):
    az.write_text("#!/bin/sh\necho 'Please run az login' >&2; exit 1\n")
    result = run("scale", "x", "gpu=1")
    assert result.exit_code == 1
    assert "az login" in result.stderr


def test_user_data_that_sunspot_did_not_write_is_one_message(cluster):
    cluster.arm.vms[HEAD].user_data = live.encoded("#!/bin/sh\n")
    result = run("scale", "x", "gpu=1")
    assert result.exit_code == 1
    assert "sunspot up" in result.stderr


def test_settings_that_are_too_large_are_not_sent(cluster, monkeypatch):
    monkeypatch.setattr(head_settings, "MAX_BYTES", 100)
    result = run("scale", "x", "gpu=1")
    assert result.exit_code == 2
    assert "at most 100" in " ".join(result.stderr.split())
    assert PATCH not in cluster.arm.requests


def test_status_says_where_file_and_cluster_differ(cluster):
    _as_the_autoscaler(cluster)
    assert run("scale", "x", "gpu=1:2").exit_code == 0
    told = " ".join(run("status", "x").output.split())
    assert "group 'gpu' was scaled by hand to 1:2; Pulumi.x.yaml says 0:4" in told
    assert "sunspot scale x gpu=0:4" in told
    assert run("scale", "x", "gpu=0:4").exit_code == 0
    assert "by hand" not in run("status", "x").output


def test_an_arm_that_does_not_answer_is_given_up_soon(az, monkeypatch):
    monkeypatch.setattr(scaling, "GLANCE_S", 0.2)
    ended = threading.Event()

    def hang(_):
        ended.wait(60)
        return Reply(200, {})

    with serving_http(hang) as url:
        with pytest.raises(SunspotError, match="timed out"):
            scaling.running(f"{VIRTUAL_MACHINES}/{HEAD}", Endpoints(management=url))
        ended.set()


def test_a_sets_capacity_is_asked_for_again_and_then_not_guessed(az):
    answers = [Reply(429, {}), Reply(200, {"sku": {"capacity": 3}}), Reply(403, {})]
    with serving_http(lambda _: answers.pop(0)) as url:
        asked = functools.partial(
            scaling.capacity, f"{VIRTUAL_MACHINES}/set", Endpoints(management=url)
        )
        assert asked() == 3
        with pytest.raises(SunspotError, match="403"):
            asked()
    az.write_text("#!/bin/sh\necho 'ERROR: read timed out' >&2; exit 1\n")
    with pytest.raises(SunspotError, match="timed out"):
        asked()
    az.write_text("#!/bin/sh\necho \"Please run 'az login' to setup account.\" >&2; exit 1\n")
    assert asked() is None
