"""A user's patch of pod templates: merged as Kubernetes does, refused where Sunspot's keys are."""

from __future__ import annotations

import pytest
from kubernetes_stacks import cluster, group, head_pod, stack, worker_pod

from sunspot.errors import UsageError
from sunspot.targets.kubernetes import manifest, patching

# Cases of kubernetes.io, "Update API Objects in Place Using kubectl patch".
OURS = {
    "metadata": {"labels": {"a": "1"}},
    "spec": {
        "containers": [{"name": "ray", "image": "x", "args": ["a", "b"]}],
        "tolerations": [{"key": "a"}],
    },
}


@pytest.mark.parametrize(
    ("patch", "expected"),
    [
        ({}, OURS),
        (
            {"metadata": {"labels": {"b": "2"}}},
            {**OURS, "metadata": {"labels": {"a": "1", "b": "2"}}},
        ),
        ({"metadata": None}, {"spec": OURS["spec"]}),
        (
            {
                "spec": {
                    "containers": [{"name": "ray", "image": "y"}, {"name": "log", "image": "z"}]
                }
            },
            {
                **OURS,
                "spec": {
                    **OURS["spec"],
                    "containers": [
                        {"name": "ray", "image": "y", "args": ["a", "b"]},
                        {"name": "log", "image": "z"},
                    ],
                },
            },
        ),
        # A list without a merge key is replaced.
        (
            {
                "spec": {
                    "tolerations": [{"key": "b"}],
                    "containers": [{"name": "ray", "args": ["c"]}],
                }
            },
            {
                **OURS,
                "spec": {
                    "containers": [{"name": "ray", "image": "x", "args": ["c"]}],
                    "tolerations": [{"key": "b"}],
                },
            },
        ),
        (
            {"spec": {"securityContext": {"fsGroup": 100, "runAsUser": None}}},
            {**OURS, "spec": {**OURS["spec"], "securityContext": {"fsGroup": 100}}},
        ),
        # A user's own names, which are not those of the lists.
        (
            {"metadata": {"labels": {"env": "prod"}}, "spec": {"nodeSelector": {"ports": "10"}}},
            {
                "metadata": {"labels": {"a": "1", "env": "prod"}},
                "spec": {**OURS["spec"], "nodeSelector": {"ports": "10"}},
            },
        ),
    ],
)
def test_a_patch_is_merged_as_kubernetes_does(patch, expected):
    before = str(OURS)
    assert patching.check(patch) == patch
    assert patching.merged(OURS, patch) == expected
    assert str(OURS) == before


def test_a_patch_adds_to_every_pod_and_a_groups_to_its_own():
    every = {
        "metadata": {"annotations": {"a": "1"}},
        "spec": {
            "priorityClassName": "batch",
            "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}],
            "containers": [
                {
                    "name": "ray",
                    "imagePullPolicy": "Never",
                    "env": [{"name": "DATA", "value": "/data"}],
                    "volumeMounts": [{"name": "data", "mountPath": "/data"}],
                }
            ],
        },
    }
    own = {"spec": {"containers": [{"name": "log", "image": "fluentd"}], "hostIPC": True}}
    made = cluster(group(), group("b"), patch=every, groups={"b": {"patch": own}})
    plain = cluster(group(), group("b"))
    for pod, before in ((head_pod(made), head_pod(plain)), (worker_pod(made), worker_pod(plain))):
        ray = pod["containers"][0]
        assert pod["priorityClassName"] == "batch"
        assert ray["imagePullPolicy"] == "Never"
        assert ray["env"] == [*before["containers"][0]["env"], {"name": "DATA", "value": "/data"}]
        assert [one["name"] for one in pod["volumes"]] == ["shared-mem", "ray-logs", "data"]
        assert "hostIPC" not in pod
    # KubeRay takes the first container for Ray's.
    assert [one["name"] for one in worker_pod(made, 1)["containers"]] == ["ray", "log"]
    assert worker_pod(made, 1)["hostIPC"] is True


def ray(**fields):
    return {"spec": {"containers": [{"name": "ray", **fields}]}}


@pytest.mark.parametrize(
    ("patch", "path"),
    [
        (ray(image="mine"), "spec > containers > ray > image"),
        (ray(resources={"limits": {"cpu": "1"}}), "containers > ray > resources > limits > cpu"),
        (ray(env=[{"name": "RAY_AUTH_MODE", "value": "disabled"}]), "ray > env > RAY_AUTH_MODE"),
        (ray(env=[{"name": "RAY_AUTH_TOKEN", "value": "x"}]), "ray > env > RAY_AUTH_TOKEN"),
        # An addition, with which the API server would refuse the variable.
        (ray(env=[{"name": "RAY_AUTH_MODE", "valueFrom": {}}]), "ray > env > RAY_AUTH_MODE"),
        (ray(env=None), "spec > containers > ray > env"),
        (ray(securityContext={"allowPrivilegeEscalation": True}), "allowPrivilegeEscalation"),
        ({"spec": {"containers": None}}, "spec > containers"),
        ({"spec": {"terminationGracePeriodSeconds": 1}}, "spec > terminationGracePeriodSeconds"),
        ({"spec": {"automountServiceAccountToken": True}}, "automountServiceAccountToken"),
        ({"spec": {"tolerations": [{"operator": "Exists"}]}}, "spec > tolerations"),
        ({"spec": {"nodeSelector": {"pool": "b"}}}, "spec > nodeSelector > pool"),
        ({"spec": {"volumes": [{"name": "shared-mem", "emptyDir": {}, "x": 1}]}}, "shared-mem"),
        ({"spec": None}, "spec"),
    ],
)
@pytest.mark.parametrize("place", ["all", "group"])
def test_a_patch_that_touches_what_sunspot_sets_is_refused(patch, path, place):
    nodes = {
        "node_selector": {"pool": "a"},
        "tolerations": [{"key": "a", "operator": "Exists"}],
    }
    if place == "all":
        described = stack(group(), cpu_nodes=nodes, patch=patch)
    else:
        described = stack(group(), cpu_nodes=nodes, groups={"workers": {"patch": patch}})
    with pytest.raises(UsageError) as caught:
        manifest.text(described)
    key = "sunspot:kubernetes > patch" if place == "all" else "groups > workers > patch"
    for part in (key, path, "is set by Sunspot"):
        assert part in str(caught.value)
    assert str(caught.value).count(path) == 1


@pytest.mark.parametrize(
    ("patch", "parts"),
    [
        ({"containers": []}, ["'containers' is not a field of a pod template", "metadata or spec"]),
        ({"spec": {"restartPolicy": "Always"}}, ["spec > restartPolicy", "KubeRay"]),
        ({"metadata": {"namespace": "x"}}, ["metadata > namespace"]),
        ({"spec": {"$patch": "replace"}}, ["$patch", "null"]),
        (ray(env={"A": "b"}), ["env is not a list"]),
        (ray(env=[{"value": "b"}]), ["env: an item has no name"]),
        (ray(env=[{"name": "RAY_enable_autoscaler_v2", "value": "0"}]), ["RAY_enable_autoscaler"]),
        (ray(env=[{"name": "RAY_AUTH_TOKEN_PATH", "value": "/x"}]), ["token_secret"]),
        ({"spec": "text"}, ["spec", "mapping"]),
        ("text", ["is not a mapping"]),
    ],
)
def test_what_is_not_a_patch_of_a_pod_template_is_refused(patch, parts):
    with pytest.raises(UsageError) as caught:
        stack(group(), patch=patch)
    for part in ["sunspot:kubernetes > patch", *parts]:
        assert part in str(caught.value)
