"""A user with only the Role of `sunspot manifest --rbac`, by the real API server's rules.

That it is enough to make and delete a cluster, the fixture of the cluster shows: the user did it.
"""

from __future__ import annotations

import requests
from machines.kubernetes.cluster import Kubectl
from ray_clusters import RayCluster

from sunspot.ray import ports
from sunspot.targets.kubernetes import manifest

# What every user may ask: who they are, and what they may do.
OF_EVERYONE = ("authentication.k8s.io", "authorization.k8s.io")


def allowed(user: Kubectl, namespace: str) -> set[str]:
    """The resources of which a user may do anything in a namespace."""
    listed = user.run("auth", "can-i", "--list", f"--namespace={namespace}").stdout.splitlines()
    found = {line.split()[0] for line in listed[1:] if not line.startswith(" ")}
    return {one for one in found if not one.endswith(OF_EVERYONE)}


def test_it_is_enough_to_use_a_cluster(ray_cluster: RayCluster, user: Kubectl):
    theirs = ray_cluster.seen_by(user)
    assert theirs("logs", theirs.head()["metadata"]["name"])
    assert theirs.get("events")["items"]
    with theirs.forwarded(ports.get("dashboard").number) as address:
        asked = {"Authorization": f"Bearer {theirs.token()}"}
        answer = requests.get(f"http://{address}/api/version", headers=asked, timeout=60)
    assert answer.json()["ray_version"] == theirs.described.cluster.ray_version


def test_it_allows_nothing_in_another_namespace(
    ray_cluster: RayCluster, user: Kubectl, namespace: str
):
    assert {"rayclusters.ray.io", "pods/exec"} <= allowed(user, ray_cluster.namespace)
    assert allowed(user, namespace) == set()
    text = manifest.text(ray_cluster.described).replace(ray_cluster.namespace, namespace)
    refused = user.run("apply", "--filename=-", stdin=text)
    assert refused.returncode != 0
    assert "forbidden" in refused.stderr


def test_it_does_not_show_the_namespaces_other_secrets(ray_cluster: RayCluster, user: Kubectl):
    ray_cluster("create", "secret", "generic", "other", "--from-literal=key=value")
    try:
        theirs = f"--namespace={ray_cluster.namespace}"
        assert "forbidden" in user.run("get", "secret", "other", theirs).stderr
        assert "forbidden" in user.run("get", "secrets", theirs).stderr
    finally:
        ray_cluster("delete", "secret", "other")
