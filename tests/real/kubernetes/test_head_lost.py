"""A head's pod that is deleted, with the GCS's state on a volume: the cluster goes on.

The pods' user is not root, as that of Ray's own images, and the person has only the Role.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kubernetes_stacks import group, stack
from machines.kubernetes.cluster import Cluster
from machines.kubernetes.node import NAME
from ray_clusters import SMALL_HEAD, SMALL_WORKER, RayCluster, command_for

from sunspot.targets.kubernetes import manifest

# A detached actor on a worker, which counts; and what a job sees of the GCS's state.
_COUNT = """
import json, os, ray
ray.init(namespace="kept", log_to_driver=False)
@ray.remote(num_cpus=0, label_selector={"ray.io/node-group": "workers"})
class Counter:
    def __init__(self):
        self.count = 0
    def add(self):
        self.count += 1
        return self.count
counter = Counter.options(name="counter", lifetime="detached", get_if_exists=True).remote()
print(json.dumps({
    "count": ray.get(counter.add.remote()),
    "cluster": ray._private.worker.global_worker.gcs_client.cluster_id.hex(),
    "seen": [name for name in os.environ if "gcs_storage" in name],
}))
"""


@pytest.fixture
def storage_class(kubernetes: Cluster) -> Iterator[str]:
    """A class with one volume, a folder of the node, which kubelets give to a pod's group."""
    name = f"local-{secrets.token_hex(3)}"
    folder = kubernetes.folder / name
    folder.mkdir(mode=0o755)
    kubernetes.kubectl.apply(*_storage(name, folder))
    yield name
    kubernetes.kubectl("delete", f"storageclass/{name}", f"persistentvolume/{name}", "--wait=false")


def _storage(name: str, folder: Path) -> list[dict[str, Any]]:
    on_node = {"key": "kubernetes.io/hostname", "operator": "In", "values": [NAME]}
    return [
        {
            "apiVersion": "storage.k8s.io/v1",
            "kind": "StorageClass",
            "metadata": {"name": name},
            "provisioner": "kubernetes.io/no-provisioner",
            "volumeBindingMode": "WaitForFirstConsumer",
        },
        {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {"name": name},
            "spec": {
                "storageClassName": name,
                "capacity": {"storage": "1Gi"},
                "accessModes": ["ReadWriteOnce"],
                "local": {"path": str(folder)},
                "nodeAffinity": {
                    "required": {"nodeSelectorTerms": [{"matchExpressions": [on_node]}]}
                },
            },
        },
    ]


def test_the_cluster_goes_on_with_its_actors_jobs_and_workers(
    kubernetes: Cluster,
    storage_class: str,
    namespace: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
):
    workers = {**group(), "worker_nodes": SMALL_WORKER}
    settings = {
        "namespace": namespace,
        "gcs_fault_tolerance": {"size": "1Gi", "storage_class": storage_class},
    }
    cluster = {"head_node": SMALL_HEAD, "scaling_groups": [workers], "ray_version": "2.60.0"}
    sunspot = command_for(tmp_path, {"sunspot:cluster": cluster, "sunspot:kubernetes": settings})
    (sunspot.project / "count.py").write_text(_COUNT)
    described = stack(workers, head=SMALL_HEAD, autoscaler=None, **settings)
    kubernetes.kubectl("apply", "--filename=-", stdin=manifest.rights_text(described))
    user = kubernetes.user("ann", "sunspot-users", namespace=namespace)
    monkeypatch.setenv("KUBECONFIG", str(user.kubeconfig))
    theirs = RayCluster.of(described, kubernetes.kubectl)

    def count() -> dict[str, Any]:
        said = sunspot.ok("submit", "--stack", "course", "--", "python", "count.py")
        return json.loads(said.splitlines()[-1])

    sunspot.ok("up", "course")
    before, head, pods = count(), theirs.head(), theirs.pods("workers")
    theirs("delete", "pod", head["metadata"]["name"])
    sunspot.ok("up", "course")  # waits for the head that KubeRay makes
    assert theirs.head()["metadata"]["uid"] != head["metadata"]["uid"]
    assert count() == {**before, "count": 2}
    assert (before["count"], before["seen"]) == (1, [])
    assert [_process(pod) for pod in theirs.pods("workers")] == [_process(pod) for pod in pods]
    jobs = json.loads(sunspot.ok("jobs", "--stack", "course", "--json"))
    assert len(jobs) == 2
    nodes = json.loads(sunspot.ok("status", "course", "--json"))["nodes"]
    assert sorted((one["group"], one["state"]) for one in nodes) == [
        ("head", "up"),
        ("workers", "up"),
    ]
    sunspot.ok("down", "course")
    assert theirs.objects() == []


def _process(pod: dict[str, Any]) -> tuple[str, int]:
    """A pod, and how often its Ray began anew."""
    (status,) = pod["status"]["containerStatuses"]
    return pod["metadata"]["uid"], status["restartCount"]
