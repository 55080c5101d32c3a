"""`sunspot manifest --job`: KubeRay makes a cluster for one command, and deletes it after it."""

from __future__ import annotations

import yaml
from kubernetes_stacks import stack
from machines.kubernetes.cluster import Cluster
from ray_clusters import SMALL_HEAD, Namespaces
from waiting import wait_for

from sunspot.targets.kubernetes import manifest

DEADLINE_S = 500
COUNTS = "import ray, sys; ray.init(); print('result', ray.get(ray.remote(lambda: 2).remote())); "


def test_the_cluster_is_there_for_one_command(kubernetes: Cluster, new_namespace: Namespaces):
    # Side by side, since most of it is waiting.
    ends = {new_namespace(): (code, end) for code, end in ((0, "SUCCEEDED"), (7, "FAILED"))}
    for namespace, (code, _) in ends.items():
        _apply(kubernetes, namespace, code)
    for namespace, (_, end) in ends.items():
        _wait_for_end(kubernetes, namespace, end)


def _apply(kubernetes: Cluster, namespace: str, code: int) -> None:
    described = stack(head=SMALL_HEAD, autoscaler=None, called="job", namespace=namespace)
    command = ("python", "-c", f"{COUNTS}sys.exit({code})")
    token = {"metadata": {"name": "job-token", "namespace": namespace}, "kind": "Secret"}
    token |= {"apiVersion": "v1", "stringData": {"auth_token": "0123456789abcdef" * 4}}
    made = list(yaml.safe_load_all(manifest.job_text(described, command)))
    kubernetes.kubectl.apply(token, *made)


def _wait_for_end(kubernetes: Cluster, namespace: str, end: str) -> None:
    kubectl, within = kubernetes.kubectl, ("--namespace", namespace)

    def status() -> dict:
        return kubectl.get("rayjob", "job", *within).get("status", {})

    def heads() -> list[dict]:
        """Those that do not end by themselves."""
        found = kubectl.items("pods", *within, "--selector", "ray.io/node-type=head")
        return [pod for pod in found if "deletionTimestamp" not in pod["metadata"]]

    wait_for("the job's end", lambda: status().get("jobStatus") == end, DEADLINE_S, poll_s=0.5)
    wait_for("no cluster", lambda: not kubectl.items("raycluster", *within), DEADLINE_S, poll_s=0.5)
    # The submitter's pod is still there, with all that the command printed.
    assert "result 2" in kubectl("logs", "job/job", *within)
    wait_for("no pod of Ray's", lambda: not heads(), DEADLINE_S, poll_s=0.5)
