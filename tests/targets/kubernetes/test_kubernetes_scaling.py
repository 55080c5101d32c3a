"""Scaling by hand: what comes, what goes, and what goes back where workers do not come."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest
from cli_runs import failed, run
from kubernetes_objects import pod
from kubernetes_stacks import FILE

from sunspot.targets.kubernetes import scaling
from sunspot.targets.kubernetes.objects import Pod
from sunspot.targets.kubernetes.starting import Waiting


def test_scale_changes_the_limits_and_removes_the_newest(kubernetes, up):
    def group():
        (found,) = kubernetes.api.one("rayclusters")["spec"]["workerGroupSpecs"]
        return tuple(found.get(key) for key in ("minReplicas", "maxReplicas", "replicas"))

    assert run("scale", "workers=2").exit_code == 0
    assert group() == (2, 3, 2)
    assert run("scale", "workers=1:2").exit_code == 0
    assert group() == (1, 2, 2)
    assert run("scale", "workers=1").exit_code == 0
    assert group() == (1, 2, 1)
    (found,) = kubernetes.api.one("rayclusters")["spec"]["workerGroupSpecs"]
    assert found["scaleStrategy"] == {"workersToDelete": ["mine-workers-1"]}
    assert "outside 0 to 3, its max_workers" in failed(2, "scale", "workers=9")
    assert "no group 'moon'" in failed(2, "scale", "moon=1")


@pytest.mark.parametrize("ends", ["in time-out", "by Ctrl-C"])
def test_a_scale_whose_workers_do_not_come_goes_back(kubernetes, up, monkeypatch, ends):
    (group,) = kubernetes.api.one("rayclusters")["spec"]["workerGroupSpecs"]
    before = {key: group.get(key) for key in ("minReplicas", "maxReplicas")}
    makes, said = kubernetes.api.make_pods, 'pods "late" is forbidden: exceeded quota: small'

    def refused(cluster):
        kubernetes.api.add("/api/v1/namespaces/default/events/e", refusal(cluster, said))
        (one,) = cluster["spec"]["workerGroupSpecs"]
        return makes(
            {**cluster, "spec": {"workerGroupSpecs": [{**one, "replicas": 1, "minReplicas": 1}]}}
        )

    kubernetes.api.make_pods = refused
    monkeypatch.setattr(scaling, "UP_TIMEOUT_S", 0.1)
    if ends == "by Ctrl-C":
        monkeypatch.setattr(scaling, "UP_TIMEOUT_S", 60)
        monkeypatch.setattr(scaling.time, "sleep", interrupted)
    told = failed(1 if ends == "in time-out" else 130, "scale", "mine", "workers=3")
    assert "group workers has its size of before again: 1" in told
    assert ends == "by Ctrl-C" or "1 of 3 workers of workers joined" in told
    assert said in told
    (group,) = kubernetes.api.one("rayclusters")["spec"]["workerGroupSpecs"]
    assert group["replicas"] == 1
    assert {key: group.get(key) for key in before} == before
    assert "scaleStrategy" not in group


def test_a_groups_on_demand_workers_count_and_leave_too(kubernetes):
    file = FILE.replace("on-demand\n", "spot-with-fallback\n        min_workers: 0\n")
    kubernetes.write(file + "  sunspot:kubernetes: {spot_nodes: {}}\n")

    def limits():
        both = kubernetes.api.one("rayclusters")["spec"]["workerGroupSpecs"]
        return [[one[key] for key in ("minReplicas", "maxReplicas", "replicas")] for one in both]

    done = run("up", "mine")
    assert done.exit_code == 0, done.output
    twin = kubernetes.api.one("rayclusters")["spec"]["workerGroupSpecs"][1]
    twin["replicas"] = 2  # as the autoscaler does where no spot machine is to be had
    kubernetes.api.reconcile()
    assert run("scale", "mine", "workers=0:1").exit_code == 0
    assert limits() == [[0, 1, 0], [0, 1, 1]]
    own, twin = kubernetes.api.one("rayclusters")["spec"]["workerGroupSpecs"]
    assert twin["scaleStrategy"] == {"workersToDelete": ["mine-workers-on-demand-1"]}
    assert "scaleStrategy" not in own
    assert run("scale", "mine", "workers=2").exit_code == 0
    assert limits() == [[2, 2, 1], [0, 2, 1]]
    workers = {"mine-workers-0", "mine-workers-1", "mine-workers-on-demand-0"}
    assert set(kubernetes.api.names("pods")) == {"mine-head-1", *workers}
    assert run("scale", "mine", "workers=0:0").exit_code == 0
    assert limits() == [[0, 0, 0], [0, 0, 0]]
    run("down", "mine")


def test_what_waits_leaves_first_then_what_is_on_demand_then_the_newest():
    waits = pod("mine", "w", "w2", unschedulable="no spot machine")
    names = ("w", "w0"), ("w", "w1"), ("w-on-demand", "d0"), ("w-on-demand", "d1")
    here = [Pod(pod("mine", kind, name)) for kind, name in names]
    order = scaling._last(("w", "w-on-demand"), [Pod(waits), *here])
    assert [one.name for one in order] == ["w2", "d1", "d0", "w1", "w0"]


def test_a_scale_that_goes_back_ends_the_workers_that_came(kubernetes, up, monkeypatch):
    monkeypatch.setattr(Pod, "is_node", lambda *_: False)
    monkeypatch.setattr(scaling, "UP_TIMEOUT_S", 0.1)
    failed(1, "scale", "mine", "workers=2")
    (group,) = kubernetes.api.one("rayclusters")["spec"]["workerGroupSpecs"]
    assert group["scaleStrategy"] == {"workersToDelete": ["mine-workers-1"]}


def test_a_job_api_that_does_not_answer_for_a_moment_undoes_no_scale(kubernetes, up, monkeypatch):
    answers, alive = [None], scaling.members.alive
    monkeypatch.setattr(
        scaling.members, "alive", lambda handle: answers.pop() if answers else alive(handle)
    )
    done = run("scale", "mine", "workers=2")
    assert done.exit_code == 0, done.output
    assert answers == []
    (group,) = kubernetes.api.one("rayclusters")["spec"]["workerGroupSpecs"]
    assert group["replicas"] == 2


def test_a_refusal_of_before_is_told_only_once_it_is_repeated():
    refused = {"FailedToCreateWorkerPod: exceeded quota: small": "13:00"}
    cluster: Any = SimpleNamespace(
        found=lambda: {"kind": "RayCluster"}, pods=list, refusals=lambda _found: dict(refused)
    )
    told = []
    waiting = Waiting.again(cluster, told.append)
    waiting._tell_refusals()
    assert told == []
    assert list(waiting._reasons()) == list(refused), "at the time-out"
    refused |= dict.fromkeys(refused, "13:40")
    waiting._tell_refusals()
    assert told == [f"KubeRay cannot make a pod: {text}" for text in refused]


def test_pods_that_wait_for_the_same_are_told_together():
    reason = "0/1 nodes are available: 1 Insufficient memory."
    late = [Pod(pod("mine", "workers", f"w{at}", unschedulable=reason)) for at in range(3)]
    begins = Pod(pod("mine", "workers", "w3") | {"status": {"phase": "Pending"}})
    assert scaling._reasons([*late, begins]) == [f"w0 and 2 more: {reason}", "w3: Pending"]


def interrupted(_seconds):
    raise KeyboardInterrupt


def refusal(cluster, message):
    """KubeRay's event of a worker's pod that the API server refuses it."""
    return {
        "metadata": {"name": "e"},
        "type": "Warning",
        "involvedObject": {"kind": "RayCluster", "uid": cluster["metadata"]["uid"]},
        "reason": "FailedToCreateWorkerPod",
        "message": message,
    }


def test_up_says_why_a_worker_has_no_pod_while_it_waits(kubernetes):
    makes, said = kubernetes.api.make_pods, 'pods "late" is forbidden: exceeded quota: small'

    def refused(cluster):
        kubernetes.api.add("/api/v1/namespaces/default/events/e", refusal(cluster, said))
        kubernetes.api.make_pods = makes
        path = "/api/v1/namespaces/default/events"
        kubernetes.api.after_reads[path] = [kubernetes.api.reconcile, lambda: None]
        return [one for one in makes(cluster) if "head" in one["metadata"]["name"]]

    kubernetes.api.make_pods = refused
    done = run("up", "mine")
    assert done.exit_code == 0, done.output
    assert f"KubeRay cannot make a pod: FailedToCreateWorkerPod: {said}" in done.output
    run("down", "mine")


def test_a_group_that_was_scaled_down_lacks_no_worker(kubernetes, up):
    assert run("scale", "workers=0").exit_code == 0
    again = run("up", "mine")
    assert (again.exit_code, "mine is up already" in again.stdout) == (0, True), again.output
    nodes = json.loads(run("status", "mine", "--json").stdout)["nodes"]
    assert [one["name"] for one in nodes] == ["head"]
