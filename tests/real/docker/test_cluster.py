"""The units' own command lines against real Docker engines: a head and two workers."""

import json
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from machines.namespaces import PATH
from machines.network import SUBNET
from machines.processes import DEADLINE_S, environment
from machines.units import running
from node_cluster import HEAD_ADDRESS, IMAGE, Cluster, Machine
from node_values import RAY_TOKEN as TOKEN
from waiting import wait_for

from sunspot.ray import ports

pytestmark = pytest.mark.timeout(1800)

GCS = f"{HEAD_ADDRESS}:{ports.get('gcs').number}"
JOBS = f"http://127.0.0.1:{ports.get('dashboard').number}/api/jobs/"

ON_EACH_NODE = """
import json, ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy as On
ray.init(address="auto", log_to_driver=False)

@ray.remote(num_cpus=1)
def where():
    return ray.util.get_node_ip_address()

found = {
    node["NodeName"]: ray.get(
        where.options(scheduling_strategy=On(node["NodeID"], soft=False)).remote(), timeout=400
    )
    for node in ray.nodes() if node["Alive"]
}
print("ANSWER", json.dumps(found))
"""


def test_head_and_workers_run_tasks(cluster: Cluster) -> None:
    assert cluster.driver(ON_EACH_NODE) == {
        "head-2": HEAD_ADDRESS,
        "spot-3": f"{SUBNET}.3",
        "steady-4": f"{SUBNET}.4",
    }


def test_nodes_say_what_they_are(cluster: Cluster) -> None:
    nodes = cluster.nodes()
    labels = {name: node["Labels"] for name, node in nodes.items()}
    assert {name: label["ray.io/market-type"] for name, label in labels.items()} == {
        "head-2": "on-demand",
        "spot-3": "spot",
        "steady-4": "on-demand",
    }
    assert labels["spot-3"]["ray.io/node-group"] == "spot"
    assert labels["spot-3"]["ray.io/availability-region"] == "uksouth"
    assert {node["Resources"]["CPU"] for node in nodes.values()} == {1}


def test_boot_report_has_every_phase(cluster: Cluster) -> None:
    for machine in cluster.machines:
        report = json.loads(machine.node.path("/var/log/sunspot/boot.json").read_text())
        phases = {entry["phase"]: entry["ok"] for entry in report}
        expected = ("disk", "docker", "image", "instance", "token", "gpus", "join")
        assert phases == dict.fromkeys(expected, True)


# The token


@pytest.mark.parametrize(
    ("header", "code"),
    [(None, "401"), ("Bearer wrong", "403"), (f"Bearer {TOKEN}", "200")],
    ids=["none", "wrong", "right"],
)
def test_jobs_are_taken_by_token_alone(cluster: Cluster, header: str | None, code: str) -> None:
    job = json.dumps({"entrypoint": "true", "submission_id": f"by-{code}"})
    assert ask(cluster.head, header, "--json", job) == code
    jobs = json.loads(ask(cluster.head, f"Bearer {TOKEN}", body=True))
    taken = {job["submission_id"] for job in jobs if job["submission_id"]}
    assert (f"by-{code}" in taken) is (code == "200")


def test_a_job_runs_to_its_end(cluster: Cluster) -> None:
    command = ("ray", "job", "submit", f"--address={JOBS.removesuffix('/api/jobs/')}", "--")
    printed = cluster.head.docker("exec", "sunspot-ray", *command, "echo", "from the job")
    assert "from the job" in printed
    assert "succeeded" in printed


def test_the_dashboard_is_out_of_the_networks_reach(cluster: Cluster) -> None:
    url = JOBS.replace("127.0.0.1", HEAD_ADDRESS)
    outside = cluster.workers[0].node.run("curl", "--silent", "--max-time", "10", url)
    refused = 7
    assert outside.returncode == refused


def by_hand(machine: Machine, *flags: str) -> tuple[int, str]:
    """A worker's `ray start` in a container with these flags, at its end: status and output."""
    joined = machine.docker.run(
        *("run", "--rm", "--network=host", *flags, "--entrypoint=ray", IMAGE),
        *("start", f"--address={GCS}", "--block"),
    )
    return joined.returncode, joined.stdout + joined.stderr


def by_its_unit(machine: Machine) -> tuple[int, str]:
    """Ray's unit with the token of the machine's vault, at its end: status and output."""
    with running(machine.node) as unit:
        wait_for("the end of the unit", lambda: unit.main.poll() is not None, DEADLINE_S)
        return unit.main.wait(), unit.printed


def test_nothing_joins_without_the_token(cluster: Cluster, stranger: Machine) -> None:
    before = set(cluster.nodes())
    tried = {
        "none": ("--env=RAY_AUTH_MODE=disabled",),
        "wrong": ("--env=RAY_AUTH_MODE=token", "--env=RAY_AUTH_TOKEN=wrong"),
    }
    # At once: each tries for 20 s.
    with ThreadPoolExecutor() as pool:
        ended = {name: pool.submit(by_hand, stranger, *flags) for name, flags in tried.items()}
        ended["another vault's"] = pool.submit(by_its_unit, stranger)
    for name, joining in ended.items():
        status, printed = joining.result()
        assert status != 0, name
        assert "auth" in printed.lower(), name
    assert set(cluster.nodes()) == before


def test_the_token_is_in_nothing_that_others_can_see(cluster: Cluster) -> None:
    for machine in cluster.machines:
        token = machine.node.path("/run/sunspot/token")
        assert token.read_text() == TOKEN
        image = machine.docker("image", "inspect", IMAGE)
        history = machine.docker("history", "--no-trunc", IMAGE)
        container = machine.docker("inspect", "sunspot-ray")
        assert "RAY_AUTH_TOKEN_PATH=/run/sunspot/token" in container
        told = [process_text(process.pid) for process in machine.node.processes()]
        assert any("docker\0run" in text for text in told)
        assert any("raylet" in text for text in told)
        assert machine.unit
        logs = [machine.unit.printed, machine.docker.log.read_text()]
        for text in (image, history, container, *told, *logs):
            assert TOKEN not in text


def process_text(pid: int) -> str:
    """A process's arguments and environment; nothing of one that has ended."""
    try:
        return "\n".join(Path(f"/proc/{pid}/{name}").read_text() for name in ("cmdline", "environ"))
    except OSError:
        return ""


def ask(head: Machine, header: str | None, *flags: str, body: bool = False) -> str:
    """Asks the job API from the head itself, as a tunnel's end does: the code, or the answer."""
    headers = ["--header", f"Authorization: {header}"] if header else []
    wanted = [] if body else ["--output", "/dev/null", "--write-out", "%{http_code}"]
    return head.node("curl", "--silent", "--max-time", "60", *headers, *wanted, *flags, JOBS)


# The end


TASK = """
import json, pathlib, sys, time, ray
ray.init(address="auto", log_to_driver=False)

@ray.remote(max_retries=0, label_selector={"ray.io/node-group": "spot"})
def slow(seconds):
    pathlib.Path("/tmp/ray/begun").touch()
    time.sleep(seconds)
    return "done"

try:
    answer = ray.get(slow.remote(float(sys.argv[1])), timeout=500)
except ray.exceptions.RayError as error:
    answer = type(error).__name__
print("ANSWER", json.dumps(answer))
"""


def test_a_stopped_unit_lets_its_task_end(cluster: Cluster) -> None:
    spot = cluster.workers[0]
    assert spot.unit
    assert outcome_when(cluster, spot, spot.unit.stop, task_s=8) == "done"
    gone = [n for n in cluster.all_nodes() if n["NodeName"] == spot.node.name]
    assert [node["Alive"] for node in gone] == [False]
    assert spot.docker("ps", "--all", "--quiet") == ""

    spot.start_ray()
    wait_for("the worker again", lambda: spot.node.name in cluster.nodes(), DEADLINE_S)


def test_a_killed_container_loses_its_task(cluster: Cluster) -> None:
    spot = cluster.workers[0]
    # Longer than a busy machine takes to kill it.
    outcome = outcome_when(cluster, spot, lambda: spot.docker("kill", "sunspot-ray"), task_s=240)
    assert outcome != "done"
    spot.start_ray()
    wait_for("the worker again", lambda: spot.node.name in cluster.nodes(), DEADLINE_S)


def outcome_when(cluster: Cluster, machine: Machine, happens, *, task_s: float) -> str:
    """What becomes of a task of so many seconds on the machine when something happens meanwhile."""
    begun = machine.node.path("/var/lib/sunspot/ray/begun")
    begun.unlink(missing_ok=True)
    driver = subprocess.Popen(
        cluster.head.docker.command("exec", "sunspot-ray", "python", "-c", TASK, str(task_s)),
        env=environment(PATH=PATH),
        stdout=subprocess.PIPE,
        text=True,
    )
    with driver:
        wait_for("the task's begin", begun.exists, DEADLINE_S)
        happens()
        printed, _ = driver.communicate(timeout=600)
    return json.loads(printed.split("ANSWER ")[1])
