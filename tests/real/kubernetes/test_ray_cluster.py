"""The life of a Ray cluster that a manifest makes, under KubeRay's operator and real pods."""

from __future__ import annotations

import json

import requests
from machines.kubernetes.cluster import Cluster
from machines.processes import DEADLINE_S
from ray_clusters import RayCluster
from waiting import wait_for

from sunspot.ray import ports

GROUP = "workers"
NODE = "sunspot"

# Three tasks that need a worker each, at the same time.
_ON_WORKERS = """
import json, time, ray
ray.init(address="auto", log_to_driver=False)
@ray.remote(num_cpus=1, label_selector={"ray.io/node-group": "workers"})
def place():
    time.sleep(5)
    return ray.get_runtime_context().get_node_id()
print(json.dumps(ray.get([place.remote() for _ in range(3)])))
"""

# Tasks that count how often each of them began and ended, in an actor on the head. The pod of each
# that ended is printed; it has another one then.
_COUNTED = """
import json, socket, time, ray
ray.init(address="auto", log_to_driver=False)
@ray.remote(num_cpus=0, label_selector={"ray.io/node-group": "head"})
class Counts:
    def __init__(self):
        self.begun, self.ended = [], []
    def begin(self, task):
        self.begun.append(task)
    def end(self, task):
        self.ended.append(task)
    def get(self):
        return self.begun, self.ended
@ray.remote(num_cpus=1, label_selector={"ray.io/node-group": "workers"})
def work(counts, task):
    ray.get(counts.begin.remote(task))
    time.sleep(3)
    ray.get(counts.end.remote(task))
    return task, socket.gethostname()
counts = Counts.remote()
pending, results = [work.remote(counts, task) for task in range(24)], []
while pending:
    (done,), pending = ray.wait(pending)
    task, pod = ray.get(done)
    print(pod, flush=True)
    results.append(task)
results.sort()
begun, ended = ray.get(counts.get.remote())
print(json.dumps({"results": results, "begun": sorted(begun), "ended": sorted(ended)}))
"""

_ON_HEAD = """
import ray
ray.init(address="auto", log_to_driver=False)
@ray.remote(num_cpus=1, label_selector={"ray.io/node-group": "head"})
def answer():
    return 42
print(ray.get(answer.remote()))
"""


def _last_line(printed: str) -> str:
    return printed.strip().splitlines()[-1]


def test_without_its_token_nobody_gets_an_answer(ray_cluster: RayCluster):
    with ray_cluster.forwarded(ports.get("dashboard").number) as address:
        jobs = f"http://{address}/api/jobs/"
        assert requests.get(jobs, timeout=60).status_code == 401
        wrong = {"Authorization": "Bearer 0123456789abcdef"}
        assert requests.get(jobs, headers=wrong, timeout=60).status_code in (401, 403)
        right = {"Authorization": f"Bearer {ray_cluster.token()}"}
        assert requests.get(jobs, headers=right, timeout=60).json() == []


def test_workers_start_when_work_waits_and_stop_when_it_is_done(ray_cluster: RayCluster):
    assert ray_cluster.pods(GROUP) == []
    nodes = json.loads(_last_line(ray_cluster.run(_ON_WORKERS)))
    assert len(set(nodes)) == 3
    assert len(ray_cluster.pods(GROUP)) == 3
    wait_for("no worker", lambda: not ray_cluster.pods(GROUP), DEADLINE_S, poll_s=1)


def test_an_evicted_worker_drains_and_no_task_is_run_twice(
    ray_cluster: RayCluster, kubernetes: Cluster
):
    with ray_cluster.running(_COUNTED) as program:
        wait_for("three workers", lambda: _ready(ray_cluster) == 3, DEADLINE_S, poll_s=1)
        kubernetes.kubectl("cordon", NODE)
        try:
            assert program.stdout is not None
            lines = map(str.strip, program.stdout)
            evicted = next(line for line in lines if line in _names(ray_cluster))
            assert program.poll() is None
            assert _evict(ray_cluster, evicted) == 0
            wait_for("its end", lambda: evicted not in _names(ray_cluster), DEADLINE_S, poll_s=1)
            printed, _ = program.communicate(timeout=DEADLINE_S)
        finally:
            kubernetes.kubectl("uncordon", NODE)
    counted = json.loads(_last_line(printed))
    every = list(range(24))
    assert counted == {"results": every, "begun": every, "ended": every}


def test_a_budget_protects_the_head_from_eviction(ray_cluster: RayCluster):
    head = ray_cluster.head()["metadata"]["name"]
    assert _evict(ray_cluster, head) != 0
    assert ray_cluster.head()["metadata"]["name"] == head


def test_a_head_that_is_deleted_comes_back(ray_cluster: RayCluster):
    before = ray_cluster.head()["metadata"]["uid"]
    ray_cluster("delete", "pod", ray_cluster.head()["metadata"]["name"])
    wait_for("another head", lambda: _head_is_new(ray_cluster, before), DEADLINE_S, poll_s=1)
    assert _last_line(ray_cluster.run(_ON_HEAD)) == "42"


def _evict(cluster: RayCluster, pod: str) -> int:
    """Asks the eviction API, as `kubectl drain` does; kubectl's exit status."""
    eviction = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": pod, "namespace": cluster.namespace},
    }
    path = f"/api/v1/namespaces/{cluster.namespace}/pods/{pod}/eviction"
    words = ("create", f"--raw={path}", "--filename=-")
    return cluster.kubectl.run(*words, stdin=json.dumps(eviction)).returncode


def _names(cluster: RayCluster) -> list[str]:
    return [pod["metadata"]["name"] for pod in cluster.get("pods")["items"]]


def _ready(cluster: RayCluster) -> int:
    return sum(map(_is_ready, cluster.pods(GROUP)))


def _is_ready(pod: dict) -> bool:
    conditions = pod["status"].get("conditions", [])
    return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)


def _head_is_new(cluster: RayCluster, before: str) -> bool:
    pods = cluster.pods("head")
    return bool(pods) and pods[0]["metadata"]["uid"] != before and _is_ready(pods[0])
