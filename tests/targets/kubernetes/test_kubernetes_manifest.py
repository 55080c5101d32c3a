"""The manifest of a cluster for KubeRay: what each stack becomes, field by field."""

from __future__ import annotations

import os
import re
import socket
import subprocess

import pytest
import yaml
from kubernetes_stacks import (
    cluster,
    documents,
    group,
    groups,
    head_pod,
    stack,
    variables,
    worker_pod,
)

from sunspot.errors import UsageError
from sunspot.ray import ports
from sunspot.stack import Stack
from sunspot.targets.kubernetes import manifest, pods

SPOT = group(minimum=0, maximum=3, market="spot")
GPU = group("gpu", gpu_count=2)


# Authentication


@pytest.mark.parametrize("settings", [{}, {"token_secret": "ours"}])
def test_every_ray_container_needs_the_token_of_the_secret(settings):
    made = cluster(SPOT, GPU, **settings)
    secret = settings.get("token_secret", "course-token")
    assert made["spec"]["authOptions"] == {"mode": "token", "secretName": secret}
    for pod in (head_pod(made), worker_pod(made), worker_pod(made, 1)):
        environment = {one["name"]: one for one in pod["containers"][0]["env"]}
        assert environment["RAY_AUTH_MODE"]["value"] == "token"
        assert environment["RAY_AUTH_TOKEN"]["valueFrom"] == {
            "secretKeyRef": {"name": secret, "key": "auth_token"}
        }


def test_the_manifest_has_no_secret_and_says_how_to_make_the_one_it_needs():
    described = stack(SPOT, namespace="ml")
    assert [one["kind"] for one in documents(described)] == ["RayCluster", "PodDisruptionBudget"]
    comments = [line for line in manifest.text(described).splitlines() if line.startswith("#")]
    assert any(
        "kubectl create secret generic course-token --namespace ml" in line for line in comments
    )


def test_pods_cannot_use_kubernetes_unless_they_are_the_autoscalers_or_the_user_says_so():
    def mounts(made):
        return [one["automountServiceAccountToken"] for one in (head_pod(made), worker_pod(made))]

    assert mounts(cluster(SPOT)) == [True, False]
    assert mounts(cluster(group())) == [False, False]
    assert mounts(cluster(group(), service_account="blobs")) == [True, True]


# Ray


def test_ray_counts_what_its_container_has():
    made = cluster(group(cpu=1.5, memory_gb=4, gpu_count=2))
    worker = made["spec"]["workerGroupSpecs"][0]["rayStartParams"]
    assert (worker["num-cpus"], worker["num-gpus"], worker["memory"]) == ("2", "2", str(4 * 2**30))
    asked = worker_pod(made)["containers"][0]["resources"]
    assert asked["limits"] == {"cpu": "1500m", "memory": "4096Mi", "nvidia.com/gpu": "2"}
    assert asked["requests"] == asked["limits"]


def test_the_head_has_what_the_autoscaler_beside_it_leaves():
    head = cluster(SPOT)["spec"]["headGroupSpec"]
    asked = head["template"]["spec"]["containers"][0]["resources"]["limits"]
    assert asked == {"cpu": "1500m", "memory": f"{7 * 1024}Mi"}
    assert head["rayStartParams"]["memory"] == str(7 * 2**30)
    alone = head_pod(cluster(group()))["containers"][0]["resources"]["limits"]
    assert alone == {"cpu": "2000m", "memory": f"{8 * 1024}Mi"}


def test_a_head_without_cpus_for_tasks_still_runs_on_one():
    head = cluster(group(), head={"cpu": 0, "memory_gb": 4})["spec"]["headGroupSpec"]
    assert head["rayStartParams"]["num-cpus"] == "0"
    assert head["template"]["spec"]["containers"][0]["resources"]["limits"]["cpu"] == "1000m"


def test_a_pod_leaves_the_machine_of_a_vm_size_its_part():
    def asked(size="Standard_D4s_v5", **settings):  # 4 vCPU, 16 GiB
        made = worker_pod(cluster(group(vm_size=size), **settings))
        return made["containers"][0]["resources"]["limits"]

    kept = 0.85 + 0.03 * 16  # and the kubelet's part, by the pods that the node may have
    assert asked() == {"cpu": "3460m", "memory": f"{int((16 - 4 - kept) * 1024)}Mi"}
    assert asked(max_pods=30)["memory"] == f"{int((16 - 0.65 - kept) * 1024)}Mi"
    assert asked(reserved_cpu=1, reserved_memory=0) == {"cpu": "3000m", "memory": f"{16 * 1024}Mi"}
    # 900 GiB: not a quarter of it.
    assert asked("Standard_ND96asr_v4")["memory"] == f"{int((900 - 5.05 - 0.85 - 27) * 1024)}Mi"


def test_kuberay_gets_no_flag_that_it_refuses_and_none_with_a_meaning_in_a_shell():
    made = cluster(SPOT, GPU)["spec"]
    for one in (made["headGroupSpec"], *made["workerGroupSpecs"]):
        flags = one["rayStartParams"]
        # validation.go: "rayStartParams['labels'] is not supported".
        assert not {"labels", "head", "autoscaling-config"} & set(flags)
        names = {flags.pop("node-name")}
        assert names <= {"head", pods.POD_NAME}
        assert all(re.fullmatch(r"[A-Za-z0-9.]+", value) for value in flags.values())
    assert made["headGroupSpec"]["rayStartParams"]["dashboard-host"] == pods.EVERY_ADDRESS


def test_kuberay_gets_no_variable_that_it_sets_itself():
    made = cluster(SPOT)
    # With autoscalerOptions.version it refuses RAY_enable_autoscaler_v2 (validation.go); the other
    # it adds to each pod (pod.go).
    assert not {"RAY_enable_autoscaler_v2", "RAY_NODE_TYPE_NAME"} & set(variables(head_pod(made)))
    assert made["spec"]["autoscalerOptions"]["version"] == "v2"


def test_tasks_that_only_wait_for_a_worker_are_not_ended():
    # Ray's early exit would end them; what keeps it from that does not run in these pods.
    assert "RAY_enable_infeasible_task_early_exit" not in variables(head_pod(cluster(SPOT)))


def test_labels_tell_group_and_market():
    made = groups(cluster(SPOT, group("fallback", market="spot-with-fallback", maximum=2)))
    assert {name: one["labels"] for name, one in made.items()} == {
        "workers": {"ray.io/node-group": "workers", "ray.io/market-type": "spot"},
        "fallback": {"ray.io/node-group": "fallback", "ray.io/market-type": "spot"},
        "fallback-on-demand": {
            "ray.io/node-group": "fallback-on-demand",
            "ray.io/market-type": "on-demand",
        },
    }


def test_the_heads_service_leads_to_the_ports_of_the_table():
    given = {
        one["name"]: one["containerPort"] for one in head_pod(cluster())["containers"][0]["ports"]
    }
    assert given == {
        "gcs-server": ports.get("gcs").number,
        "dashboard": ports.get("dashboard").number,
        "client": ports.get("client").number,
        "serve": ports.get("serve").number,
        "metrics": ports.get("metrics-export").number,
    }


@pytest.mark.parametrize(
    ("image", "gpus", "expected"),
    [
        (None, 0, "rayproject/ray:2.60.0-py311"),
        (None, 1, "rayproject/ray:2.60.0-py311-gpu"),
        ({"reference": "mine/ray:1"}, 1, "mine/ray:1"),
    ],
)
def test_the_image_is_the_stacks_or_rays_own(image, gpus, expected):
    made = cluster(group(gpu_count=gpus), image=image)
    assert worker_pod(made)["containers"][0]["image"] == expected


# Size


def test_an_elastic_group_leaves_its_replicas_to_the_autoscaler():
    made = cluster(SPOT, group("fixed", minimum=2, maximum=2), idle_timeout_s=90)
    elastic, fixed = groups(made)["workers"], groups(made)["fixed"]
    assert "replicas" not in elastic
    assert (elastic["minReplicas"], elastic["maxReplicas"]) == (0, 3)
    assert (fixed["replicas"], fixed["minReplicas"], fixed["maxReplicas"]) == (2, 2, 2)
    assert made["spec"]["enableInTreeAutoscaling"] is True
    assert made["spec"]["autoscalerOptions"]["idleTimeoutSeconds"] == 90


def test_a_group_may_have_an_idle_timeout_of_its_own():
    made = cluster(SPOT, group("fixed"), groups={"workers": {"idle_timeout_s": 20}})
    assert groups(made)["workers"]["idleTimeoutSeconds"] == 20
    # KubeRay refuses it without the autoscaler, and a fixed group has none.
    assert "idleTimeoutSeconds" not in groups(made)["fixed"]


def test_spot_with_fallback_is_two_groups_and_spot_comes_first():
    made = groups(cluster(group(market="spot-with-fallback", minimum=1, maximum=4)))
    spot, twin = made["workers"], made["workers-on-demand"]
    assert spot["priority"] > twin["priority"]
    waits = {"name": "RAY_AUTOSCALER_RECONCILE_ALLOCATE_STATUS_TIMEOUT_S", "value": "1500"}
    options = cluster(group(market="spot-with-fallback"))["spec"]["autoscalerOptions"]
    assert options["env"] == [waits]
    assert "env" not in cluster(group(minimum=0))["spec"]["autoscalerOptions"]
    assert (spot["minReplicas"], spot["maxReplicas"]) == (1, 4)
    assert (twin["minReplicas"], twin["maxReplicas"]) == (0, 4)


@pytest.mark.parametrize(
    ("described", "expected"),
    [
        (stack(SPOT), "KubeRay 1.6"),
        # KubeRay 1.6 has no `priority`, and kubectl refuses fields that it does not know.
        (stack(group(market="spot-with-fallback")), "KubeRay 1.7"),
        (stack(gcs_fault_tolerance={}), "KubeRay 1.6"),
    ],
)
def test_the_manifest_says_which_kuberay_it_needs(described, expected):
    assert f"for {expected} or later" in manifest.text(described)


# The end of a pod


def before_the_end(pod):
    return pod["containers"][0]["lifecycle"]["preStop"]["exec"]["command"]


@pytest.fixture
def called(tmp_path, monkeypatch):
    """Runs what a pod runs before its end; what it calls `ray` with, a line each.

    Without a head, `ray drain-node` does not end, as Ray's for a while.
    """
    ray, log = tmp_path / "ray", tmp_path / "log"
    drains = '[ "$1" != drain-node ] || [ -n "$HEAD" ] || exec sleep 60'
    ray.write_text(f'#!/bin/sh\necho "$@" >> {log}\n{drains}\n')
    ray.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")

    def run(pod, agent, *, head=True):
        log.unlink(missing_ok=True)
        *shell, script = before_the_end(pod)
        script = script.replace("/52365)", f"/{agent})").replace("SECONDS < 5)", "SECONDS < 1)")
        with socket.create_server(("127.0.0.1", 0)) as gcs:
            port = gcs.getsockname()[1] if head else NOBODY
            monkeypatch.setenv("RAY_ADDRESS", f"127.0.0.1:{port}")
            monkeypatch.setenv("HEAD", "yes" if head else "")
            subprocess.run([*shell, script], check=True, timeout=30)
        return log.read_text().splitlines()

    return run


NOBODY = 1  # a port that nothing listens on


def test_a_worker_drains_within_its_grace_period_and_the_head_only_stops(called):
    made = cluster(SPOT, grace_period_s=40)
    assert worker_pod(made)["terminationGracePeriodSeconds"] == 40
    drain, stop = called(worker_pod(made), NOBODY)
    assert drain.startswith("drain-node --reason=DRAIN_NODE_REASON_PREEMPTION")
    assert drain.endswith("--deadline-remaining-seconds=35")
    assert stop == "stop --grace-period=5"
    assert called(head_pod(made), NOBODY) == [stop]


def test_a_worker_that_does_not_get_idle_in_time_is_stopped(called):
    # The agent of the dashboard, which ends with the raylet, is there to the end.
    with socket.create_server(("127.0.0.1", 0)) as agent:
        worker = worker_pod(cluster(SPOT, grace_period_s=10))
        drain, stop = called(worker, agent.getsockname()[1])
    assert drain.endswith("--deadline-remaining-seconds=5")
    assert stop == "stop --grace-period=5"


def test_a_worker_without_a_head_does_not_wait_for_its_drain(called):
    # It may be cut before it begins.
    *_, stop = called(worker_pod(cluster(SPOT, grace_period_s=600)), NOBODY, head=False)
    assert stop == "stop --grace-period=5"


def test_the_heads_pod_has_a_disruption_budget_unless_it_is_off():
    budget = documents(stack(SPOT, namespace="ml"))[1]
    assert budget["metadata"]["namespace"] == "ml"
    assert budget["spec"]["minAvailable"] == 1
    # The labels that KubeRay gives a head's pod (pod.go, labelPod).
    assert budget["spec"]["selector"]["matchLabels"] == {
        "ray.io/cluster": "course",
        "ray.io/node-type": "head",
    }
    assert len(documents(stack(SPOT, head_disruption_budget=False))) == 1


# Sematic


@pytest.mark.parametrize(
    ("groups_given", "expected"),
    [
        # Its kuberay_wrapper's cases: only a head, one group, several groups.
        ([], []),
        ([group(minimum=2, maximum=2)], [("workers", 2, 2)]),
        (
            [group("a", minimum=1, maximum=3), group("b", minimum=0, maximum=1, gpu_count=1)],
            [("a", 1, 3), ("b", 0, 1)],
        ),
    ],
)
def test_as_in_sematic(groups_given, expected):
    made = cluster(*groups_given)
    spec = made["spec"]
    assert (made["kind"], spec["rayVersion"]) == ("RayCluster", "2.60.0")
    # Not its v1alpha1, which KubeRay has deprecated.
    assert made["apiVersion"] == "ray.io/v1"
    assert spec["headGroupSpec"]["serviceType"] == "ClusterIP"
    assert [
        (one["groupName"], one["minReplicas"], one["maxReplicas"])
        for one in spec["workerGroupSpecs"]
    ] == expected
    # The autoscaler is there only if a group needs it; with its own requests and limits.
    elastic = any(low < high for _, low, high in expected)
    assert spec["enableInTreeAutoscaling"] is elastic
    assert ("autoscalerOptions" in spec) is elastic
    if elastic:
        asked = {"cpu": "500m", "memory": "1024Mi"}
        assert spec["autoscalerOptions"]["resources"] == {"requests": asked, "limits": asked}
    for one in (spec["headGroupSpec"], *spec["workerGroupSpecs"]):
        assert one["rayStartParams"]["block"] == "true"
        pod = one["template"]["spec"]
        asked = pod["containers"][0]["resources"]
        assert asked["requests"] == asked["limits"]
        assert {"name": "ray-logs", "emptyDir": {}} in pod["volumes"]
        assert "ray stop" in before_the_end(pod)[-1]
        # KubeRay's own init container waits for the head now.
        assert "initContainers" not in pod


# The text


def test_the_text_is_the_same_for_the_same_stack():
    assert manifest.text(stack(SPOT, GPU)) == manifest.text(stack(SPOT, GPU))


def test_the_text_has_no_aliases_and_no_unquoted_number_among_names():
    text = manifest.text(stack(SPOT, cpu_nodes={"node_selector": {"pool": "1e3", "on": "y"}}))
    assert not re.search(r"[&*]id0", text)
    assert "pool: '1e3'" in text  # 1000.0 for kubectl without the quotes
    assert "'on': 'y'" in text
    assert [one["kind"] for one in yaml.safe_load_all(text)]


# What is refused


@pytest.mark.parametrize(
    ("described", "parts"),
    [
        (stack(called="My.stack"), ["sunspot:kubernetes > name", "'My.stack'", "RFC 1035"]),
        (stack(called="x" * 60), ["name", "60 characters", "53"]),
        (stack(groups={"gpus": {}}), ["groups > gpus", "head"]),
        (stack(image={"context": "."}), ["sunspot:image > context", "reference"]),
        (stack(GPU, gpu_key="amd.com/gpu"), ["sunspot:image > reference", "amd.com/gpu"]),
        (
            stack(SPOT, head={"cpu": 1, "memory_gb": 2.5}),
            ["head_node", "autoscaler", "1.5 GiB", "memory_gb"],
        ),
        (stack(SPOT, head={"cpu": 0.5, "memory_gb": 4}), ["head_node", "0 CPUs", "raise cpu"]),
        (
            stack(group(vm_size="Standard_D2s_v5"), reserved_cpu=2),
            ["scaling_groups[0] > worker_nodes", "0 CPUs"],
        ),
    ],
)
def test_a_stack_that_cannot_run_on_kubernetes_is_refused(described, parts):
    with pytest.raises(UsageError) as caught:
        manifest.text(described)
    for part in ["on kubernetes", *parts]:
        assert part in str(caught.value)


def test_a_stack_with_another_name_gives_one_for_the_cluster():
    config = {
        "sunspot:cluster": {"head_node": {"cpu": 2, "memory_gb": 8}, "ray_version": "2.60.0"},
        "sunspot:kubernetes": {"name": "mine"},
    }
    made = documents(Stack.parse(config, name="My.stack"))
    assert [one["metadata"]["name"] for one in made] == ["mine", "mine-head"]
