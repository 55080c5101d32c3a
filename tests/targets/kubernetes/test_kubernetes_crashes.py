"""Pods that crash while a cluster is waited for: those that will not run, and those that may."""

from __future__ import annotations

import copy

import pytest
from cli_runs import failed, run
from kubernetes_objects import member, pod

from sunspot.targets.kubernetes import starting

PODS = "/api/v1/namespaces/default/pods"
LOG = "ModuleNotFoundError: No module named 'ray'"


def group_of(name):
    return "head" if name.startswith("mine-head") else "workers"


def crashing(name, *, restarts):
    """A pod that the kubelet starts again, after a while."""
    waiting = {"reason": "CrashLoopBackOff", "message": "back-off 10s"}
    made = pod("mine", group_of(name), name, waiting=waiting)
    made["status"]["containerStatuses"][0]["restartCount"] = restarts
    return made


def failing(name, **status):
    """A pod that ended, as all do that have an autoscaler: KubeRay makes another one."""
    made = pod("mine", group_of(name), name, phase="Failed")
    ended = {"name": "ray", "ready": False, "state": {"terminated": {"exitCode": 1}}}
    made["status"] |= {"containerStatuses": [ended], **status}
    return made


def then(kubernetes, *later):
    """The pods of later looks: the list of them in each, the first one next."""
    looks = [*later]

    def look():
        pods = named(looks.pop(0)) if looks else None
        if "mine" not in kubernetes.api.names("rayclusters") or is_ending(kubernetes):
            pods = {}
        if pods is None:
            return
        kubernetes.jobs.nodes = [member(one) for one in pods.values() if is_up(one)]
        for path in [path for path in kubernetes.api.objects if path.startswith(f"{PODS}/")]:
            del kubernetes.api.objects[path]
        for name, one in pods.items():
            kubernetes.api.add(f"{PODS}/{name}", one)

    kubernetes.api.make_pods = lambda _cluster: []
    kubernetes.api.after_reads[PODS] = [look] * 1000


def named(pods):
    return {one["metadata"]["name"]: copy.deepcopy(one) for one in pods}


def is_ending(kubernetes):
    return "deletionTimestamp" in kubernetes.api.one("rayclusters")["metadata"]


def is_up(one):
    return one["status"]["phase"] == "Running"


def nothing_is_left(kubernetes):
    run("down", "mine")
    return kubernetes.api.names("rayclusters") == kubernetes.api.names("secrets") == []


HEAD = pod("mine", "head", "mine-head-1")
STARTS = pod("mine", "head", "mine-head-1", waiting={"reason": "ContainerCreating"})


@pytest.mark.parametrize(
    "looks",
    [
        [[STARTS], [crashing("mine-head-1", restarts=1)]],
        [[crashing("mine-head-1", restarts=3)], [crashing("mine-head-1", restarts=4)]],
        [[failing("mine-head-1")], [failing("mine-head-1")], [failing("mine-head-2")]],
    ],
    ids=["new", "again", "by KubeRay"],
)
def test_a_head_that_keeps_crashing_shows_the_end_of_its_log(kubernetes, looks):
    kubernetes.api.logs |= {"mine-head-1": LOG, "mine-head-2": LOG}
    last = looks[-1][0]
    then(kubernetes, *looks)
    said = failed(1, "up", "mine")
    assert f"container ray of {last['metadata']['name']} keeps crashing" in said
    assert LOG in said
    assert nothing_is_left(kubernetes)


@pytest.mark.parametrize(
    "looks",
    [
        # Its head was away, and Ray ended on it.
        [[STARTS, crashing("w1", restarts=1)], [HEAD, crashing("w1", restarts=2)]],
        # The kubelet ended it.
        [[failing("mine-head-1", reason="Evicted")], [failing("mine-head-2", reason="Evicted")]],
        [[failing("mine-head-1")]],
    ],
    ids=["worker", "evicted", "once"],
)
def test_a_crash_that_passes_is_waited_for(kubernetes, looks):
    then(kubernetes, *looks, [HEAD, pod("mine", "workers", "w1")])
    done = run("up", "mine")
    assert done.exit_code == 0, done.stderr
    assert nothing_is_left(kubernetes)


UNMADE = pod(
    "mine",
    "head",
    "mine-head-1",
    waiting={
        "reason": starting.CONFIG_ERROR,
        "message": "failed to sync secret cache: timed out waiting for the condition",
    },
)


def test_a_container_that_is_not_created_for_a_moment_is_waited_for(kubernetes, monkeypatch):
    """The kubelet tries again, on a node that came late as well."""
    monkeypatch.setattr(starting, "CONFIG_PATIENCE_S", 0.4)
    late = [[STARTS]] * 12
    then(kubernetes, *late, [UNMADE], [HEAD, pod("mine", "workers", "w1")])
    done = run("up", "mine")
    assert done.exit_code == 0, done.stderr
    assert nothing_is_left(kubernetes)
    then(kubernetes, *late, [UNMADE])
    said = failed(2, "up", "mine")
    assert "container ray of mine-head-1 cannot be created: failed to sync" in said
    assert nothing_is_left(kubernetes)
