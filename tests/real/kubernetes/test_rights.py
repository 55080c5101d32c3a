"""A user with only the Role of `sunspot manifest --rbac`, by the real API server's rules."""

from __future__ import annotations

import pytest
import requests
from kubernetes_stacks import stack
from machines.kubernetes.cluster import Cluster, Kubectl
from ray_clusters import SMALL_AUTOSCALER, SMALL_HEAD, RayCluster

from sunspot.ray import ports
from sunspot.targets.kubernetes import manifest, raycluster

RESOURCES = ("rayclusters.ray.io", "rayservices.ray.io", "secrets", "pods", "events")
VERBS = ("list", "create")


@pytest.fixture
def described(namespace: str):
    return stack(head=SMALL_HEAD, autoscaler=SMALL_AUTOSCALER, namespace=namespace)


@pytest.fixture
def ann(kubernetes: Cluster, described) -> Kubectl:
    kubernetes.kubectl("apply", "--filename=-", stdin=manifest.rights_text(described))
    return kubernetes.user("ann", raycluster.settings(described).user_group)


def test_it_is_enough_for_a_cluster_from_its_token_to_its_end(described, ann: Kubectl):
    cluster = RayCluster.of(described, ann)
    cluster.make_token()
    cluster.apply()
    cluster.apply()  # again, as after a change
    cluster.wait_until_ready()
    head = cluster.head()["metadata"]["name"]
    assert cluster("logs", head)
    assert cluster.get("events")["items"]
    with cluster.forwarded(ports.get("dashboard").number) as address:
        asked = {"Authorization": f"Bearer {cluster.token()}"}
        answer = requests.get(f"http://{address}/api/version", headers=asked, timeout=60)
    assert answer.json()["ray_version"] == described.cluster.ray_version
    cluster("delete", "--filename=-", "--wait=false", stdin=manifest.text(described))
    cluster("delete", "secret", cluster.token_secret)


def test_it_allows_nothing_in_another_namespace(described, ann: Kubectl, new_namespace):
    other = new_namespace()
    for resource in RESOURCES:
        for verb in VERBS:
            asked = ann.run("auth", "can-i", verb, resource, f"--namespace={other}")
            assert asked.stdout.strip() == "no", (verb, resource)
    refused = ann.run("apply", "--filename=-", stdin=_elsewhere(described, other))
    assert refused.returncode != 0
    assert "forbidden" in refused.stderr


def test_it_does_not_show_the_namespaces_other_secrets(
    described, ann: Kubectl, kubernetes: Cluster, namespace: str
):
    where = f"--namespace={namespace}"
    kubernetes.kubectl("create", "secret", "generic", "other", "--from-literal=key=value", where)
    assert "forbidden" in ann.run("get", "secret", "other", where).stderr
    assert "forbidden" in ann.run("get", "secrets", where).stderr


def _elsewhere(described, namespace: str) -> str:
    own = raycluster.settings(described).namespace
    return manifest.text(described).replace(own, namespace)
