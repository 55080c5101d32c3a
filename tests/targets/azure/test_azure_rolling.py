"""A new boot reaches a running cluster on Azure: `sunspot up` rolls the workers with an older one.

Pulumi's part is a fake, ARM a stand-in in which a set's VMs keep the model that they were made
from. What the engine does to a set: tests/real/engine/test_engine.py.
"""

from dataclasses import replace

import pytest
from azure_clusters import FIXED_SET, GPU_SET, join, leave
from azure_model.arm import Vm
from azure_rolls import (
    SECOND,
    both_are_rolled,
    drained,
    edited,
    failed,
    launches,
    models,
    scaled,
    with_gpu_workers,
    work_ends,
)
from azure_stacks import declared, run, up
from ssh_server import needs_sshd

from sunspot.targets.azure import draining, rolling
from sunspot.targets.azure.replacing import Replacement

pytestmark = [needs_sshd, pytest.mark.usefixtures("az")]


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(draining, "POLL_S", 0.02)
    monkeypatch.setattr(rolling, "POLL_S", 0.02)


def test_a_fixed_groups_workers_are_replaced_one_after_the_other(cluster, place):
    here = []

    def look():
        here.append(sum(one["labels"]["ray.io/node-group"] == "fixed" for one in cluster.api.nodes))

    work_ends(cluster, seen=look)
    edited(cluster, place, "fixed")
    _, steps = up(cluster)
    assert drained(cluster) == ["vm_a", "vm_b"]
    assert min(here) == 1  # the other one works on
    assert models(cluster) == [SECOND, SECOND]
    assert cluster.arm.sets[FIXED_SET].capacity == 2
    assert "fixed: 2 workers with an older boot were replaced" in steps

    # With an unchanged file there is nothing to do.
    requests = [*cluster.arm.requests]
    up(cluster)
    assert {method for method, _ in cluster.arm.requests[len(requests) :]} == {"GET"}
    assert len(drained(cluster)) == 2


def test_a_quarter_goes_at_a_time_and_idle_workers_first(cluster, place):
    cluster.arm.sets[FIXED_SET].capacity = 8
    for number in range(6):
        cluster.arm.vms[f"vm_{number}"] = Vm(f"vm_{number}", FIXED_SET, "Succeeded")
        join(cluster, f"vm_{number}", "fixed")
    scaled(cluster, "fixed", 8, 8)
    busy = ["vm_a", "vm_b", "vm_0", "vm_1", "vm_2"]
    cluster.api.summary = {
        "summary": [{"raylet": {"nodeId": one, "nodeName": one}} for one in [*busy, "vm_3"]],
        "nodeLogicalResources": {"vm_3": "0.0/4.0 CPU", **dict.fromkeys(busy, "1.0/4.0 CPU")},
    }
    least = []
    work_ends(cluster, seen=lambda: least.append(len(cluster.api.nodes) - 1))
    edited(cluster, place, "fixed")
    up(cluster)
    order = drained(cluster)
    assert {*order[:2], *order[2:4]} > {"vm_3", "vm_4", "vm_5"}
    assert set(busy).isdisjoint(order[:2])
    assert len(order) == len({*order}) == 8
    assert min(least) == 6
    assert models(cluster) == [SECOND] * 8


def test_a_replacement_that_does_not_join_stops_the_roll_until_the_boot_is_mended(
    cluster, place, monkeypatch
):
    monkeypatch.setattr(rolling, "JOIN_LIMIT_S", 0.3)
    plain, cluster.joins = cluster.arm.on_boot, False

    def boot(vm):
        vm.console = "sunspot: phase image failed: manifest unknown\n"
        plain(vm)

    cluster.arm.on_boot = boot
    work_ends(cluster)
    edited(cluster, place, "fixed")
    text = failed(1)
    assert "did not join" in text
    assert "phase image of its boot failed: manifest unknown" in text
    assert "1 have the older boot" in text
    assert "sunspot logs --stack x --node sunspot-x-fixed_" in text
    assert models(cluster) == ["first", SECOND]
    assert drained(cluster) == ["vm_a"]
    assert any(one["node_name"] == "vm_b" for one in cluster.api.nodes)

    cluster.joins = True
    edited(cluster, place, "fixed", boot="third")
    up(cluster)
    assert models(cluster) == ["third", "third"]
    assert drained(cluster) == ["vm_a", "vm_b"]  # the broken one had nothing to end


def test_what_was_interrupted_goes_on_with_an_unchanged_file(cluster, place):
    def interrupt(step):
        if "to finish" in step:
            raise KeyboardInterrupt

    edited(cluster, place, "fixed")
    with pytest.raises(KeyboardInterrupt) as raised:
        cluster.target.up(declared(), interrupt)
    notes = " ".join(raised.value.__notes__)
    assert "Go on" in notes
    assert "sunspot up x --now" in notes
    assert drained(cluster) == ["vm_a"]

    # Meanwhile it has ended its work, and left Ray; its VM is there.
    cluster.api.nodes = [
        {**one, "state": "DEAD"} if one["node_name"] == "vm_a" else one for one in cluster.api.nodes
    ]
    work_ends(cluster, but=["vm_a"])
    up(cluster)
    assert drained(cluster) == ["vm_a", "vm_b"]
    assert models(cluster) == [SECOND, SECOND]


def test_a_roll_keeps_no_other_command_waiting(cluster, place):
    seen = []

    def look(step):
        if "draining" in step:
            seen.append({one.name for one in cluster.target.nodes("x")})

    work_ends(cluster)
    edited(cluster, place, "fixed")
    cluster.target.up(declared(), look)
    assert len(seen) == 2
    assert "vm_a" in seen[0]
    assert "vm_b" in seen[1]


def test_a_worker_that_never_finishes_ends_it_with_what_to_do(cluster, place, monkeypatch):
    monkeypatch.setattr(draining, "DRAIN_LIMIT_S", 1)
    work_ends(cluster, but=["vm_a"])
    edited(cluster, place, "fixed")
    text = failed(2)
    assert "fixed: vm_a still work" in text
    assert "sunspot up x --now" in text
    assert "is billed" not in text
    assert models(cluster) == ["first", "first"]
    assert drained(cluster) == ["vm_a"]

    up_now = run("up", "x", "--now")
    assert up_now.exit_code == 0, up_now.output
    assert models(cluster) == [SECOND, SECOND]
    assert drained(cluster) == ["vm_a"]


def test_a_batch_of_which_one_goes_on_gets_the_others_back(cluster, place, monkeypatch):
    monkeypatch.setattr(draining, "DRAIN_LIMIT_S", 8)
    monkeypatch.setattr(rolling, "SHARE", 1)
    work_ends(cluster, but=["vm_a"])
    edited(cluster, place, "fixed")
    failed(2)
    assert models(cluster) == ["first", SECOND]
    assert cluster.arm.sets[FIXED_SET].capacity == 2


def test_an_evicted_worker_is_left_to_azure(cluster, place):
    def evict():
        if (vm := cluster.arm.vms.get("vm_a")) is not None and drained(cluster):
            leave(cluster, "vm_a")
            cluster.arm.evict(vm)
            # Azure restores it, after its time, from the model of then.
            restored = Vm("restored", FIXED_SET, "Succeeded", model=SECOND)
            cluster.arm.vms[restored.name] = restored
            cluster.arm.sets[FIXED_SET].capacity += 1
            cluster.arm.on_boot(restored)

    work_ends(cluster, but=["vm_a"], seen=evict)
    edited(cluster, place, "fixed")
    up(cluster)
    assert models(cluster) == [SECOND, SECOND]
    assert cluster.arm.sets[FIXED_SET].capacity == 2


def test_a_replacement_that_is_evicted_is_not_waited_for(cluster, place):
    cluster.joins = False

    def evict():
        for vm in [*cluster.arm.vms.values()]:
            if vm.model == SECOND and vm.state == "Succeeded" and not cluster.joins:
                cluster.arm.evict(vm)
                cluster.joins = True
                join(cluster, "restored", "fixed", SECOND)
                cluster.arm.vms["restored"] = Vm("restored", FIXED_SET, model=SECOND)
                cluster.arm.sets[FIXED_SET].capacity += 1

    work_ends(cluster, seen=evict)
    edited(cluster, place, "fixed")
    up(cluster)
    assert models(cluster) == [SECOND, SECOND]


def test_a_group_of_one_is_replaced_too(cluster, place):
    assert run("scale", "x", "fixed=1").exit_code == 0
    cluster.drained.unlink()
    work_ends(cluster)
    edited(cluster, place, "fixed")
    # Its file says two: what was scaled by hand holds here, too.
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sunspot.targets.members.missing", lambda *_: "")
        up(cluster)
    assert models(cluster) == [SECOND]
    assert cluster.arm.sets[FIXED_SET].capacity == 1


def test_elastic_workers_go_and_the_autoscaler_brings_what_is_needed(cluster, place):
    with_gpu_workers(cluster, "gpu_0", "gpu_1")
    work_ends(cluster)
    edited(cluster, place, "gpu")
    up(cluster)
    assert models(cluster, GPU_SET) == []
    assert cluster.arm.sets[GPU_SET].capacity == 0
    assert models(cluster) == ["first", "first"]


def test_an_elastic_groups_minimum_is_back_before_the_next_ones_go(cluster, place, monkeypatch):
    with_gpu_workers(cluster, "gpu_0", "gpu_1")
    scaled(cluster, "gpu", 2, 4)
    work_ends(cluster)
    edited(cluster, place, "gpu")
    monkeypatch.setattr(rolling, "JOIN_LIMIT_S", 0.3)
    text = failed(1)
    assert "1 of at least 2 workers have not joined" in text
    assert "sunspot status x" in text
    assert models(cluster, GPU_SET) == ["first"]

    join(cluster, "came", "gpu", SECOND)
    cluster.arm.vms["came"] = Vm("came", GPU_SET, "Succeeded", model=SECOND)
    launches(cluster)
    monkeypatch.setattr(rolling, "JOIN_LIMIT_S", 60)
    up(cluster)
    assert models(cluster, GPU_SET) == [SECOND, SECOND]


def test_another_up_that_was_faster_is_no_error(cluster, place):
    def faster(scale_set):
        cluster.arm.before_patch = lambda _: None
        scale_set.capacity += 1
        scale_set.revision += 1
        made = [cluster.arm._begin(scale_set)]
        cluster.arm._boot(made)

    work_ends(cluster)
    cluster.arm.before_patch = faster
    edited(cluster, place, "fixed")
    up(cluster)
    assert models(cluster) == [SECOND, SECOND]
    assert cluster.arm.sets[FIXED_SET].capacity == 2


def test_azures_other_case_of_names_is_the_same_machine(cluster, place):
    cluster.arm.is_loud = True
    for name in ("vm_a", "vm_b"):
        vm = cluster.arm.vms.pop(name)
        cluster.arm.vms[name.upper()] = replace(vm, name=name.upper())
    both_are_rolled(cluster, place)


def test_after_plain_pulumi_status_says_it_and_up_rolls(cluster, place):
    edited(cluster, place, "fixed")
    place.fake.up(lambda _: None)
    told = " ".join(run("status", "x").stdout.split())
    assert "2 of 2 workers of fixed have an older boot" in told
    assert "sunspot up x" in told
    work_ends(cluster)
    up(cluster)
    assert models(cluster) == [SECOND, SECOND]
    assert "older boot" not in run("status", "x").stdout


def test_without_an_answer_of_azure_it_says_that_it_replaced_none(cluster, place, az):
    edited(cluster, place, "fixed", then=lambda: az.write_text("#!/bin/sh\nexit 1\n"))
    _, steps = up(cluster)
    assert any("so none is replaced" in step for step in steps)
    assert steps[-1] == "every node is a member"
    assert models(cluster) == ["first", "first"]


def test_workers_that_find_the_new_head_again_are_drained_and_not_cut_off(cluster, place):
    place.fake.plan = (Replacement(urn="urn::head", type="azure-native:compute:VirtualMachine"),)
    looks = []

    def away():
        workers = [one for one in cluster.api.nodes if not one["is_head_node"]]
        cluster.api.nodes = [one for one in cluster.api.nodes if one["is_head_node"]]

        def seen():
            looks.append(1)
            if len(looks) == 20:
                cluster.api.nodes = [*workers, *cluster.api.nodes]

        work_ends(cluster, seen=seen)

    edited(cluster, place, "fixed", then=away)
    assert run("up", "x", "--replace-head").exit_code == 0
    assert drained(cluster) == ["vm_a", "vm_b"]
    assert models(cluster) == [SECOND, SECOND]


def test_workers_that_cannot_join_a_head_with_another_ray_are_replaced_at_once(cluster, place):
    def lost():
        cluster.api.nodes = [one for one in cluster.api.nodes if one["is_head_node"]]

    edited(cluster, place, "fixed", then=lost)
    up(cluster)
    assert drained(cluster) == []
    assert models(cluster) == [SECOND, SECOND]
