"""The head comes back, and the cluster is the same one: its state was on disk."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from machines.network import SUBNET, Network
from machines.processes import DEADLINE_S
from machines.units import boot
from node_cluster import HEAD, Cluster, machine
from waiting import wait_for

pytestmark = pytest.mark.timeout(1800)

# The dashboard answers later than its node joins.
_JOB_API = f"""
import time
from ray.job_submission import JobSubmissionClient
def job_api():
    until = time.monotonic() + {DEADLINE_S}
    while True:
        try:
            return JobSubmissionClient()
        except ConnectionError:
            if time.monotonic() > until:
                raise
        time.sleep(1)
"""
# One actor's process lives on a worker, the other's on the head.
_BEGIN = """
import json, ray
from ray._raylet import GcsClient
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
counts = {}
for name in ACTORS:
    on = {"resources": {"node:__internal_head__": 0.001}}  # also of the head that comes back
    if not name.startswith("head"):
        on = {"scheduling_strategy": On(ids[name], soft=False)}
    actor = Counter.options(name=NAME + name, lifetime="detached", **on).remote()
    counts[name] = ray.get([actor.add.remote() for _ in range(3)])[-1]
job = job_api().submit_job(entrypoint="true", submission_id=NAME + "job")
cluster = GcsClient(address=ray.get_runtime_context().gcs_address).cluster_id.hex()
print("ANSWER", json.dumps({"ids": ids, "counts": counts, "cluster": cluster}))
"""
_GO_ON = """
import json, ray
from ray._raylet import GcsClient
ray.init(address="auto", namespace="kept", log_to_driver=False)
counts = {}
for name in ACTORS:
    actor = ray.get_actor(NAME + name)
    counts[name] = ray.get(actor.add.remote(), timeout=400)
    ray.kill(actor)
ids = {node["NodeName"]: node["NodeID"] for node in ray.nodes() if node["Alive"]}
jobs = [job.submission_id for job in job_api().list_jobs()]
cluster = GcsClient(address=ray.get_runtime_context().gcs_address).cluster_id.hex()
print("ANSWER", json.dumps({"ids": ids, "counts": counts, "jobs": jobs, "cluster": cluster}))
"""


@pytest.mark.parametrize("power_lost", [False, True], ids=["in-order", "power-lost"])
def test_actors_jobs_and_workers_live_on(cluster: Cluster, power_lost: bool) -> None:
    name = "lost-" if power_lost else "order-"
    named = _given(name, "spot-3", "head-2")
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
    assert after["cluster"] == before["cluster"]
    same = {"spot-3", "steady-4"}
    assert {n: i for n, i in after["ids"].items() if n in same} == {
        n: i for n, i in before["ids"].items() if n in same
    }


STATE = "/var/lib/sunspot/state"
# Beside the cluster's own nodes.
NUMBER = 12


def test_a_new_head_with_the_disk_of_the_one_before_is_the_same_cluster(
    lan: Network, folder: Path
) -> None:
    """As after `sunspot up --replace-head`: all else of the machine is new."""
    values = replace(HEAD, facts=replace(HEAD.facts, head_address=f"{SUBNET}.{NUMBER}"))
    given, disk = _given("moved-", f"head-{NUMBER}"), folder / "disk.tar"
    with machine(lan, NUMBER, values, folder) as old:
        boot(old.node)
        old.start_ray()
        before = Cluster(old, ()).driver(given + _BEGIN)
        old.close()
        old.node("tar", "-C", STATE, "-cf", "/disk.tar", ".")
        shutil.move(old.node.root / disk.name, disk)
    with machine(lan, NUMBER, values, folder) as new:
        shutil.move(disk, new.node.root)
        new.node("tar", "-C", STATE, "-xf", "/disk.tar")
        boot(new.node)
        new.start_ray()
        after = Cluster(new, ()).driver(given + _GO_ON)
    assert after["cluster"] == before["cluster"]
    # Its process was on the machine that is gone.
    assert after["counts"] == {f"head-{NUMBER}": 1}
    assert "moved-job" in after["jobs"]
    assert set(after["ids"]) == {f"head-{NUMBER}"}
    assert after["ids"] != before["ids"]


def _given(name: str, *actors: str) -> str:
    return f"NAME, ACTORS = {json.dumps(name)}, {json.dumps(actors)}\n{_JOB_API}"
