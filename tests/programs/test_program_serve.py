"""An application of Ray Serve under load, while its nodes come and go and it is deployed again.

60 requests a second are what two cores answer with other work on the machine.
"""

from __future__ import annotations

import importlib.util
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests
from harness import Sunspot, kill_node
from http_load import load
from waiting import wait_for

from sunspot.node.free_ports import free_port
from sunspot.ray import serve_files
from sunspot.ray.handle import ClusterHandle

# What CI sets: nothing is skipped, and a test without Serve fails.
NEEDED = "SUNSPOT_TESTS_NEED_SERVE"
pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("fastapi") is None and not os.environ.get(NEEDED),
    reason="no Ray Serve here: make setup-serve",
)

BROUGHT = Path(__file__).parent / "brought"
WORKLOADS = Path(__file__).parents[2] / "workloads"
RATE = 60.0
# Azure's is 30 s; this machine is busy with other tests, too. The node leaves as soon as it may.
NOTICE_S = 240
# A look is a whole command, which costs as much as many requests.
LOOK_S = 1.0
JOIN_S = 400.0
STACK = "serving"
# Two workers, either of which can hold both replicas.
CLUSTER = """
head_node: {cpu: 1, memory_gb: 2}
scaling_groups:
  - name: spot
    market: spot
    min_workers: 2
    max_workers: 2
    worker_nodes: {cpu: 1, memory_gb: 2}
"""


@pytest.fixture(scope="module")
def cluster(sunspot: Sunspot) -> Iterator[ClusterHandle]:
    (sunspot.project / f"{STACK}.yaml").write_text(CLUSTER)
    sunspot.ok("up", "--file", f"{STACK}.yaml")
    yield sunspot.target.handle(STACK)
    sunspot.ok("down", STACK)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("served")
    (folder / "serves.py").write_text((BROUGHT / "serves.py").read_text())
    return folder


@pytest.fixture(scope="module")
def url(sunspot: Sunspot, cluster: ClusterHandle, folder: Path) -> str:
    """The address of the application, once it is deployed."""
    port = free_port(set())
    out = sunspot.ok(*deploy("serves:app", folder, port))
    # Otherwise the files would be deleted with the last replica.
    assert len(files_kept(sunspot)) == 1
    assert f"http://127.0.0.1:{port}/" in out
    return f"http://127.0.0.1:{port}/"


def files_kept(sunspot: Sunspot) -> list[str]:
    """The jobs that keep files of applications."""
    jobs = sunspot.client(STACK).list()
    return [one.id for one in jobs if one.id.startswith(serve_files.PREFIX) and not one.has_ended]


def deploy(what: str, folder: Path, port: int) -> tuple[str, ...]:
    return ("serve", "deploy", what, STACK, "--working-dir", str(folder), "--port", str(port))


def port_of(url: str) -> int:
    return int(url.rstrip("/").rpartition(":")[2])


def deployment(sunspot: Sunspot) -> dict[str, Any]:
    done = sunspot("serve", "status", STACK, "--json")
    if done.returncode:  # a busy dashboard may not answer in time
        return {}
    return json.loads(done.stdout)["applications"][0]["deployments"][0]


def nodes_of_replicas(sunspot: Sunspot) -> list[str]:
    """The nodes of both replicas, once both run and none moves."""

    def both() -> list[str]:
        found = deployment(sunspot)
        return found["nodes"] if found.get("replicas") == {"RUNNING": 2} else []

    return wait_for("two replicas", both, JOIN_S, poll_s=LOOK_S)


def two_workers(sunspot: Sunspot) -> list[str]:
    """The workers, once there are two: a lost one is replaced."""

    def up() -> list[str]:
        done = sunspot("status", STACK, "--json")
        nodes = json.loads(done.stdout)["nodes"] if done.stdout else []
        names = [one["name"] for one in nodes if one["group"] == "spot" and one["state"] == "up"]
        return names if len(names) == 2 else []

    return wait_for("two workers", up, JOIN_S, poll_s=LOOK_S)


def test_a_port_that_is_taken_is_refused_and_nothing_is_left(
    sunspot: Sunspot, cluster: ClusterHandle, folder: Path
):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        for _ in ("Serve cannot bind it", "something listens, which is seen at once"):
            done = sunspot(*deploy("serves:app", folder, port))
            assert done.returncode == 2, done.stdout + done.stderr
            assert f"127.0.0.1:{port}" in done.stderr
            taken.listen()
    assert json.loads(sunspot.ok("serve", "status", STACK, "--json"))["ingress"] is None
    assert files_kept(sunspot) == []


def test_a_drained_node_fails_no_request(sunspot: Sunspot, url: str, cluster: ClusterHandle):
    node = nodes_of_replicas(sunspot)[0]
    environment = sunspot.environment() | cluster.environment()
    environment["RAY_ADDRESS"] = cluster.head_address
    with load(url, RATE) as seen:
        seen.wait_for_more(200)
        command = [sys.executable, "-m", "sunspot.node.drain", f"--seconds={NOTICE_S}", node]
        began = time.monotonic()
        drained = subprocess.run(command, env=environment, check=False, timeout=NOTICE_S + 120)
        took = time.monotonic() - began
        seen.wait_for_more(300)
    print(f"drained in {took:.1f} s: {seen.told()}")
    assert drained.returncode == 0, "the node was still a member at the end of its notice"
    assert seen.failures == []
    assert node not in nodes_of_replicas(sunspot)


def test_a_killed_node_fails_few_requests(sunspot: Sunspot, url: str, cluster: ClusterHandle):
    two_workers(sunspot)
    node = nodes_of_replicas(sunspot)[0]
    with load(url, RATE / 3) as seen:
        seen.wait_for_more(100)
        kill_node(sunspot.folder(STACK), node)
        wait_for("replacements", lambda: node not in nodes_of_replicas(sunspot), JOIN_S)
    # What it was handling, and what came until the ingress saw that it is gone.
    print(f"killed: {seen.told()}")
    assert len(seen.failures) < len(seen.answers)
    wait_for(
        "the ingress to answer",
        lambda: requests.get(url, timeout=30).ok,
        not_yet=(requests.RequestException,),
    )
    with load(url, RATE / 3) as seen:
        seen.wait_for_more(100)
    assert seen.failures == []


def test_it_is_deployed_again_without_a_gap(sunspot: Sunspot, url: str, folder: Path):
    program, one = folder / "serves.py", (BROUGHT / "serves.py").read_text()
    if program.read_text() != one:  # a second try, after the first has deployed the other
        program.write_text(one)
        sunspot.ok(*deploy("serves:app", folder, port_of(url)))
    nodes_of_replicas(sunspot)
    program.write_text(one.replace('"one"', '"two"'))
    with load(url, RATE) as seen:
        seen.wait_for_more(200)
        sunspot.ok(*deploy("serves:app", folder, port_of(url)))
        seen.wait_for_more(200)
    print(f"deployed again: {seen.told()}")
    assert seen.failures == []
    assert seen.answers[0][0]["version"] == "one"
    assert seen.answers[-1][0]["version"] == "two"


def test_an_application_that_cannot_be_imported_leaves_the_one_before(
    sunspot: Sunspot, url: str, folder: Path
):
    done = sunspot(*deploy("nowhere:app", folder, port_of(url)))
    assert done.returncode == 1
    assert "ModuleNotFoundError: No module named 'nowhere'" in done.stderr
    assert requests.get(url, timeout=120).json()["version"] == "two"
    assert "nowhere" in sunspot.ok("serve", "status", STACK)


def test_the_workload_is_served_without_torch_and_measured(
    sunspot: Sunspot, url: str, tmp_path: Path
):
    out = tmp_path / "serve.json"
    load = ("--load", "3", "--clients", "8", "--port", str(free_port({port_of(url)})))
    replicas = ("--stand-in", "400", "--replicas", "1", "--cpus", "0.2")
    command = ("python", "serve.py", *replicas, *load)
    job = ("submit", "--stack", STACK, "--working-dir", str(WORKLOADS), "--", *command)
    printed = sunspot.ok(*job, "--out", str(out))
    assert "p99" in printed
    assert f"its port is {port_of(url)}" in printed
    result = json.loads(out.read_text())
    assert result["failed"] == 0
    assert 0 < result["requests_per_second"] < 400
    assert {node["market"] for node in result["by_node"].values()} == {"spot"}
