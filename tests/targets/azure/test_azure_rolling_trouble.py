"""Rolls that must stop, and rolls from where there is no record of the cluster, or an older one."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
from azure_clusters import GPU_SET
from azure_rolls import (
    SECOND,
    both_are_rolled,
    drained,
    edited,
    failed,
    launches,
    models,
    with_gpu_workers,
    work_ends,
)
from azure_stacks import run, up
from ssh_server import needs_sshd

from cloud_init.render import HEAD_AWAY_S
from sunspot.node.notices import Notice
from sunspot.targets.azure import draining, history, rolling
from sunspot.targets.azure.replacing import Replacement
from sunspot.targets.history import Recorded

pytestmark = [needs_sshd, pytest.mark.usefixtures("az")]

OLD = ("gpu_0", "gpu_1", "gpu_2")


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(draining, "POLL_S", 0.02)
    monkeypatch.setattr(rolling, "POLL_S", 0.02)


def busy_gpus(cluster, place, **needs):
    """Old workers of the elastic group, and one task that waits."""
    with_gpu_workers(cluster, *OLD)
    work_ends(cluster)
    task = {"state": "PENDING_NODE_ASSIGNMENT", "job_id": "01", "name": "f", "type": "NORMAL_TASK"}
    cluster.api.state["tasks"] = [{**task, "required_resources": needs or {"GPU": 1.0}}]
    edited(cluster, place, "gpu")


def says(monkeypatch, **notice):
    """Has the head say this of the elastic group."""
    said = Notice(about="group:gpu", text="gpu is paused, and gets no machines", **notice)
    monkeypatch.setattr(history, "recorded", lambda _: Recorded(notices=[said]))


def test_a_boot_that_does_not_come_up_ends_no_more_of_an_elastic_group(cluster, place, monkeypatch):
    monkeypatch.setattr(rolling, "JOIN_LIMIT_S", 0.3)
    busy_gpus(cluster, place)
    launches(cluster)
    cluster.joins = False
    text = failed(1)
    assert "new_gpu_0 did not join" in text
    assert "2 have the older boot" in text
    assert models(cluster, GPU_SET) == ["first", "first", SECOND]
    assert drained(cluster) == ["gpu_0"]


def test_nor_where_nothing_comes_for_work_that_waits(cluster, place, monkeypatch):
    monkeypatch.setattr(rolling, "JOIN_LIMIT_S", 0.3)
    busy_gpus(cluster, place)
    text = failed(1)
    assert "1 of 3 workers, which waiting work needs, have not joined" in text
    assert models(cluster, GPU_SET) == ["first", "first"]


def test_work_for_other_machines_waits_for_none_of_this_group(cluster, place, monkeypatch):
    monkeypatch.setattr(rolling, "JOIN_LIMIT_S", 0.3)
    busy_gpus(cluster, place, GPU=8.0)
    up(cluster)
    assert models(cluster, GPU_SET) == []


def test_what_comes_for_it_has_joined_before_the_next_one_goes(cluster, place, monkeypatch):
    says(monkeypatch, until=9e9)  # a shortage that ends
    busy_gpus(cluster, place)
    launches(cluster)
    up(cluster)
    assert models(cluster, GPU_SET) == [SECOND] * 3
    assert drained(cluster) == [*OLD]


def test_a_paused_group_keeps_its_workers(cluster, place, monkeypatch):
    monkeypatch.setattr(rolling, "LIFT_LIMIT_S", 0.1)
    says(monkeypatch)
    with_gpu_workers(cluster, *OLD)
    work_ends(cluster)
    edited(cluster, place, "gpu")
    assert "gpu is paused" in failed(1)
    assert models(cluster, GPU_SET) == ["first"] * 3
    assert drained(cluster) == []


@pytest.mark.parametrize("kept", ["nothing", "an older one", "one of another schema"])
def test_up_rolls_without_a_record_of_the_cluster_here(cluster, place, kept):
    records = cluster.target.records
    record = records.known("x")
    records.forget("x")
    if kept == "an older one":
        records.write("x", replace(record, head="", group_id=""))
    elif kept == "one of another schema":
        records.write("x", replace(record, stack={"cluster": {"key": "of another version"}}))
    both_are_rolled(cluster, place)


def test_workers_may_look_for_the_new_head_as_long_as_they_do(cluster, place):
    assert rolling.REJOIN_LIMIT_S >= HEAD_AWAY_S
    place.fake.plan = (Replacement(urn="urn::head", type="azure-native:compute:VirtualMachine"),)

    def lost():
        cluster.api.nodes = [one for one in cluster.api.nodes if one["is_head_node"]]

    edited(cluster, place, "fixed", then=lost)
    assert run("up", "x", "--replace-head", "--now").exit_code == 0  # which does not wait for them
    assert models(cluster) == [SECOND, SECOND]


def test_those_that_never_find_the_new_head_are_waited_for_once(cluster, place, monkeypatch):
    place.fake.plan = (Replacement(urn="urn::head", type="azure-native:compute:VirtualMachine"),)
    with_gpu_workers(cluster, *OLD)

    def lost():
        cluster.api.nodes = [one for one in cluster.api.nodes if one["is_head_node"]]

    edited(cluster, place, "fixed", "gpu", then=lost)
    slept = []
    clock = SimpleNamespace(monotonic=lambda: sum(slept), sleep=slept.append)
    monkeypatch.setattr(rolling, "time", clock)
    monkeypatch.setattr(rolling, "POLL_S", 60.0)
    assert run("up", "x", "--replace-head").exit_code == 0
    assert rolling.REJOIN_LIMIT_S < sum(slept) < 2 * rolling.REJOIN_LIMIT_S
    assert models(cluster) == [SECOND, SECOND]
    assert models(cluster, GPU_SET) == []
