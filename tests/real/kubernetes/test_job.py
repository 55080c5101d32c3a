"""`sunspot manifest --job`: KubeRay makes a cluster for one command, and deletes it after it."""

from __future__ import annotations

import pytest
import yaml
from kubernetes_stacks import stack
from machines.kubernetes.cluster import Cluster
from ray_clusters import SMALL_HEAD
from waiting import wait_for

from sunspot.targets.kubernetes import manifest

DEADLINE_S = 500
COUNTS = "import ray, sys; ray.init(); print('result', ray.get(ray.remote(lambda: 2).remote())); "


@pytest.mark.parametrize(("code", "ends"), [(0, "SUCCEEDED"), (7, "FAILED")])
def test_the_cluster_is_there_for_one_command(
    kubernetes: Cluster, namespace: str, code: int, ends: str
):
    described = stack(head=SMALL_HEAD, autoscaler=None, called="job", namespace=namespace)
    command = ("python", "-c", f"{COUNTS}sys.exit({code})")
    token = {"metadata": {"name": "job-token", "namespace": namespace}, "kind": "Secret"}
    token |= {"apiVersion": "v1", "stringData": {"auth_token": "0123456789abcdef" * 4}}
    made = list(yaml.safe_load_all(manifest.job_text(described, command)))
    kubernetes.kubectl.apply(token, *made)

    def status() -> dict:
        return kubernetes.kubectl.get("rayjob", "job", "-n", namespace).get("status", {})

    wait_for("the job's end", lambda: status().get("jobStatus") == ends, DEADLINE_S)
    wait_for(
        "no cluster",
        lambda: kubernetes.kubectl.items("raycluster", "-n", namespace) == [],
        DEADLINE_S,
    )
    # The submitter's pod is still there, with all that the command printed.
    assert "result 2" in kubernetes.kubectl("logs", "job/job", "-n", namespace)
    wait_for(
        "no pod of Ray's",
        lambda: (
            not kubernetes.kubectl.items("pods", "-n", namespace, "-l", "ray.io/node-type=head")
        ),
        DEADLINE_S,
    )
