"""Groups that leave a cluster on Azure: their workers are drained before Pulumi's engine runs.

Pulumi's part is a fake, ARM a stand-in. With the real engine: tests/real/engine/test_sunspot_up.py.
"""

import pytest
from azure_clusters import FIXED_SET, GPU_SET, join, leave, settings
from azure_model.arm import SCALE_SETS, Vm
from azure_model.pulumi_state import resource
from azure_stacks import declared, member, members, run, up
from ssh_server import needs_sshd

from cloud_init.live import live_settings
from sunspot.node.azure import live
from sunspot.targets.azure import draining, leaving
from sunspot.targets.azure.credentials import Endpoints
from sunspot.targets.azure.plan import plan
from sunspot.targets.azure.preview.user_data import stand_ins
from sunspot.targets.azure.replacing import SCALE_SET, Replacement
from sunspot.targets.local.target import LocalTarget
from sunspot.targets.protocol import silent
from sunspot.targets.ssh import UnreachableError

pytestmark = [needs_sshd, pytest.mark.usefixtures("az")]


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(draining, "POLL_S", 0.02)


def goes(cluster, place, name, *, deleted=True):
    """Has the next `up` delete a scale set, or replace it; the file's workers are there then."""
    made = resource(SCALE_SET, f"{SCALE_SETS}/{name}")
    place.fake.now = (*place.fake.now, made)
    place.fake.plan = (Replacement(urn=made["urn"], type=SCALE_SET, deleted=deleted),)
    place.fake.calls.clear()
    plain = place.fake.up

    def engine_up(progress):
        cluster.at_up = {*cluster.arm.vms}
        (head,) = [one for one in members() if one["is_head_node"]]
        cluster.api.nodes = [member("new_a"), member("new_b"), head]
        return plain(progress)

    place.fake.up = engine_up


def work_ends(cluster, *names, seen=lambda: None):
    """Has these nodes leave Ray once they drain, at the next look at the machines."""
    plain = cluster.arm._list

    def listed(start):
        seen()
        text = cluster.drained.read_text() if cluster.drained.exists() else ""
        for name in names:
            if name in text:
                leave(cluster, name)
        return plain(start)

    cluster.arm._list = listed


def with_gpu_worker(cluster):
    cluster.arm.add(GPU_SET)
    cluster.arm.sets[GPU_SET].capacity = 1
    cluster.arm.vms["gpu_0"] = Vm("gpu_0", GPU_SET, "Succeeded")
    join(cluster, "gpu_0", "gpu")


def test_a_removed_groups_workers_have_left_before_the_engine_runs(cluster, place):
    work_ends(cluster, "vm_a", "vm_b")
    goes(cluster, place, FIXED_SET)
    _, steps = up(cluster)
    assert cluster.at_up.isdisjoint({"vm_a", "vm_b"})
    assert cluster.arm.sets[FIXED_SET].capacity == 0
    assert "--no-wait" in cluster.drained.read_text()
    assert "will delete VirtualMachineScaleSet sunspot-x-fixed" in steps
    assert "fixed: all workers have left" in steps


def test_the_autoscaler_asks_for_no_more_of_them_and_stops_none_that_works(cluster, place):
    with_gpu_worker(cluster)
    found = []
    work_ends(cluster, "gpu_0", seen=lambda: found.append(settings(cluster.arm)))
    goes(cluster, place, GPU_SET)
    up(cluster)
    config = found[0].autoscaler
    assert found[0].leaving == ("gpu",)
    assert config["provider"]["maximums"]["gpu"] == 0
    kind = config["available_node_types"]["gpu"]
    assert (kind["min_workers"], kind["max_workers"]) == (0, 4)
    assert "gpu_0" not in cluster.arm.vms
    assert {"vm_a", "vm_b"} <= cluster.arm.vms.keys()


def test_a_set_that_is_replaced_is_drained_too(cluster, place):
    work_ends(cluster, "vm_a", "vm_b")
    goes(cluster, place, FIXED_SET, deleted=False)
    up(cluster)
    assert cluster.arm.vms.keys().isdisjoint({"vm_a", "vm_b"})
    assert "up" in place.fake.calls


def test_a_machine_that_has_not_joined_is_not_waited_for(cluster, place):
    cluster.arm.vms["vm_c"] = Vm("vm_c", FIXED_SET)
    cluster.arm.sets[FIXED_SET].capacity = 3
    work_ends(cluster, "vm_a", "vm_b")
    goes(cluster, place, FIXED_SET)
    up(cluster)
    assert "vm_c" not in cluster.arm.vms
    assert "vm_c" not in cluster.drained.read_text()


def test_a_group_that_still_has_work_is_refused_and_says_now(cluster, place, monkeypatch):
    monkeypatch.setattr(draining, "DRAIN_LIMIT_S", 4)
    work_ends(cluster, "vm_a")
    goes(cluster, place, FIXED_SET)
    result = run("up", "x")
    text = " ".join(result.stderr.split())
    assert result.exit_code == 2, result.output
    assert "fixed: vm_b still work" in text
    assert "sunspot up x --now" in text
    assert "is billed" not in text
    assert "up" not in place.fake.calls
    assert "vm_b" in cluster.arm.vms
    # It goes on where it stopped.
    work_ends(cluster, "vm_b")
    monkeypatch.setattr(draining, "DRAIN_LIMIT_S", 60)
    up(cluster)
    assert "up" in place.fake.calls
    assert "vm_b" not in cluster.arm.vms


def test_with_now_nothing_is_waited_for(cluster, place):
    goes(cluster, place, FIXED_SET)
    result = run("up", "x", "--now")
    assert result.exit_code == 0, result.output
    assert "up" in place.fake.calls
    assert not cluster.drained.exists()
    assert {"vm_a", "vm_b"} <= cluster.arm.vms.keys()  # the engine's to delete


def test_ctrl_c_says_how_it_stands(cluster, place, monkeypatch):
    def interrupt(_):
        raise KeyboardInterrupt

    goes(cluster, place, FIXED_SET)
    monkeypatch.setattr(draining.Workers, "nodes", interrupt)
    with pytest.raises(KeyboardInterrupt) as raised:
        up(cluster)
    notes = " ".join(raised.value.__notes__)
    assert "No scale set was deleted" in notes
    assert "sunspot up x --now" in notes
    assert "up" not in place.fake.calls
    assert settings(cluster.arm).leaving == ("fixed",)


def test_without_a_login_nothing_goes_and_now_is_named(cluster, place, az):
    az.write_text("#!/bin/sh\necho 'Please run az login' >&2; exit 1\n")
    goes(cluster, place, FIXED_SET)
    result = run("up", "x")
    assert result.exit_code == 1
    assert "az login" in result.stderr
    assert "--now" in result.stderr
    assert "up" not in place.fake.calls


def test_a_head_that_cannot_be_reached_names_now():
    def connect():
        raise UnreachableError("no route to the head")

    with pytest.raises(UnreachableError) as raised:
        leaving.drain("x", connect, ["gpu"], silent, Endpoints())
    assert "sunspot up x --now" in " ".join(raised.value.__notes__)


def test_nothing_is_drained_where_the_head_is_replaced(cluster, place):
    goes(cluster, place, FIXED_SET)
    head = Replacement(urn="urn::head", type="azure-native:compute:VirtualMachine")
    assert leaving.kinds((*place.fake.plan, head), place.fake, "x") == []
    assert leaving.kinds((), place.fake, "x") == []


def test_settings_of_a_group_that_leaves_are_settings_that_the_head_takes(cluster, place):
    described = plan(declared(), place.project)
    before = live.parse(live.decoded(live_settings(described, stand_ins(described))))
    idle = {"after_minutes": 5, "action": "workers", "fixed": [FIXED_SET.upper(), "other"]}
    after = leaving.closed(leaving.replace(before, idle=idle), "x", ["fixed", "gpu"])
    assert live.parse(after.text()) == after
    assert after.idle is not None
    assert after.idle["fixed"] == ["other"]
    assert after.prices == before.prices
    assert leaving.closed(after, "x", ["fixed"]).leaving == ("fixed", "gpu")


def test_now_is_refused_where_no_group_is_drained(place, monkeypatch):
    monkeypatch.setattr("sunspot.targets.local.create", lambda: LocalTarget(place.project / "none"))
    result = run("up", "x", "--target", "local", "--now")
    assert result.exit_code == 2
    assert "does not support removing groups" in result.stderr
