"""The head comes back, and the cluster is the same one: its state was on disk."""

import json

import pytest
from machines.processes import DEADLINE_S
from node_cluster import Cluster
from waiting import wait_for

pytestmark = pytest.mark.timeout(1800)

# One actor's process lives on a worker, the other's on the head.
_BEGIN = """
import json, ray
from ray.job_submission import JobSubmissionClient
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy as On
ray.init(address="auto", namespace="kept", log_to_driver=False)

@ray.remote(num_cpus=0, max_restarts=-1)
class Counter:
    def __init__(self):
        self.count = 0
    def add(self):
        self.count += 1
        return self.count

ids = {node["NodeName"]: node["NodeID"] for node in ray.nodes() if node["Alive"]}
on = {
    "spot-3": {"scheduling_strategy": On(ids["spot-3"], soft=False)},
    "head-2": {"resources": {"node:__internal_head__": 0.001}},  # also of the head that comes back
}
counts = {}
for name in ("spot-3", "head-2"):
    actor = Counter.options(name=NAME + name, lifetime="detached", **on[name]).remote()
    counts[name] = ray.get([actor.add.remote() for _ in range(3)])[-1]
job = JobSubmissionClient().submit_job(entrypoint="true", submission_id=NAME + "job")
print("ANSWER", json.dumps({"ids": ids, "counts": counts}))
"""
_GO_ON = """
import json, ray
from ray.job_submission import JobSubmissionClient
ray.init(address="auto", namespace="kept", log_to_driver=False)
counts = {}
for name in ("spot-3", "head-2"):
    actor = ray.get_actor(NAME + name)
    counts[name] = ray.get(actor.add.remote(), timeout=120)
    ray.kill(actor)
ids = {node["NodeName"]: node["NodeID"] for node in ray.nodes() if node["Alive"]}
jobs = [job.submission_id for job in JobSubmissionClient().list_jobs()]
print("ANSWER", json.dumps({"ids": ids, "counts": counts, "jobs": jobs}))
"""


@pytest.mark.parametrize("power_lost", [False, True], ids=["in-order", "power-lost"])
def test_actors_jobs_and_workers_live_on(cluster: Cluster, power_lost: bool) -> None:
    name = "lost-" if power_lost else "order-"
    named = f"NAME = {json.dumps(name)}\n"
    before = cluster.driver(named + _BEGIN)
    assert before["counts"] == {"spot-3": 3, "head-2": 3}

    if power_lost:
        assert cluster.head.unit
        main = cluster.head.unit.main
        cluster.head.docker("kill", "sunspot-ray")
        wait_for("the container's end", lambda: main.poll() is not None, DEADLINE_S)
    cluster.head.close()
    cluster.head.start_ray()
    wait_for("three nodes", lambda: len(cluster.nodes()) == len(cluster.machines), DEADLINE_S)

    after = cluster.driver(named + _GO_ON)
    # The worker's process was never stopped; the head's actor was started anew.
    assert after["counts"] == {"spot-3": 4, "head-2": 1}
    assert f"{name}job" in after["jobs"]
    same = {"spot-3", "steady-4"}
    assert {n: i for n, i in after["ids"].items() if n in same} == {
        n: i for n, i in before["ids"].items() if n in same
    }
