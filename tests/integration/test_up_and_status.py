"""`sunspot up`, `status` and `scale`: what comes up is what the spec says, for its owner alone."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys

import pytest
import requests
from harness import ANSI, COLOUR, Sunspot, alive
from waiting import wait_for

from sunspot.ray.handle import ClusterHandle

GIB = 2**30

ASK_THE_GCS = """
import sys
from ray._raylet import GcsClient
print(len(GcsClient(address=sys.argv[1]).get_all_node_info(timeout=120)), "nodes")
"""


def living_nodes(sunspot: Sunspot) -> dict[str, dict]:
    nodes = sunspot.client("main").state("nodes")
    return {node["node_name"]: node for node in nodes if node["state"] == "ALIVE"}


def in_a_terminal(sunspot: Sunspot, *arguments: str, **variables: str) -> str:
    """What the command prints where stdout and stderr are a terminal."""
    ours, theirs = pty.openpty()
    terminal = {"TERM": "xterm-256color", "COLUMNS": "120"}
    with subprocess.Popen(
        sunspot.command(*arguments),
        cwd=sunspot.project,
        env=sunspot.environment() | terminal | variables,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
    ) as process:
        os.close(theirs)
        printed = b""
        while chunk := read(ours):
            printed += chunk
    os.close(ours)
    assert process.returncode == 0, printed
    return printed.decode()


def read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65_536)
    except OSError:  # how Linux says that the other end is closed
        return b""


def ask_the_gcs(
    sunspot: Sunspot, address: str, **variables: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", ASK_THE_GCS, address],
        env=sunspot.environment() | variables,
        capture_output=True,
        text=True,
        check=False,
        timeout=180,
    )


def test_nodes_have_exactly_the_resources_of_the_spec(sunspot: Sunspot, cluster: ClusterHandle):
    nodes = living_nodes(sunspot)
    found = {
        name: {key: nodes[name]["resources_total"].get(key, 0) for key in ("CPU", "GPU", "memory")}
        for name in ("head", "fixed-0")
    }
    assert found == {
        "head": {"CPU": 2, "GPU": 0, "memory": 2 * GIB},
        "fixed-0": {"CPU": 1, "GPU": 1, "memory": 2.5 * GIB},
    }


def test_nodes_carry_group_and_market_as_labels(sunspot: Sunspot, cluster: ClusterHandle):
    nodes = living_nodes(sunspot)
    found = {
        name: {key: nodes[name]["labels"][f"ray.io/{key}"] for key in ("node-group", "market-type")}
        for name in ("head", "fixed-0")
    }
    assert found == {
        "head": {"node-group": "head", "market-type": "on-demand"},
        "fixed-0": {"node-group": "fixed", "market-type": "spot"},
    }


def test_an_elastic_group_starts_at_its_minimum(sunspot: Sunspot, cluster: ClusterHandle):
    started = {node.name for node in sunspot.folder("main").nodes() if node.shape.group == "fixed"}
    assert started == {"fixed-0"}
    assert sunspot.folder("main").cluster().shapes.keys() == {"head", "fixed", "elastic"}


def test_nothing_is_written_to_the_home(sunspot: Sunspot, cluster: ClusterHandle):
    assert list(sunspot.home.iterdir()) == []


def test_the_job_api_refuses_who_has_no_token(cluster: ClusterHandle):
    answers = {
        path: requests.get(cluster.job_address + path, timeout=120).status_code
        for path in ("/api/jobs/", "/nodes?view=summary", "/api/v0/nodes")
    }
    assert set(answers.values()) == {401}, answers


def test_the_gcs_refuses_who_has_no_token(sunspot: Sunspot, cluster: ClusterHandle):
    with_token = ask_the_gcs(sunspot, cluster.head_address, **cluster.environment())
    assert with_token.returncode == 0, with_token.stderr
    without = ask_the_gcs(sunspot, cluster.head_address, RAY_AUTH_MODE="disabled")
    wrong = ask_the_gcs(
        sunspot, cluster.head_address, RAY_AUTH_MODE="token", RAY_AUTH_TOKEN="0" * 64
    )
    assert "nodes" not in without.stdout + wrong.stdout
    assert without.returncode != 0
    assert wrong.returncode != 0


def test_status_as_json(sunspot: Sunspot, cluster: ClusterHandle):
    status = json.loads(sunspot.ok("status", "--json"))
    assert status["head_address"] == cluster.head_address
    assert status["problem"] is None
    assert isinstance(status["jobs"], list)
    nodes = {node["name"]: node for node in status["nodes"]}
    assert [nodes[name]["state"] for name in ("head", "fixed-0")] == ["up", "up"]
    assert (nodes["fixed-0"]["market"], nodes["fixed-0"]["gpus"]) == ("spot", 1)
    assert nodes["fixed-0"]["memory_gb"] == 2.5


def test_status_shows_nodes_and_market(sunspot: Sunspot, cluster: ClusterHandle):
    rows = [line.split() for line in sunspot.ok("status").splitlines()]
    (row,) = (row for row in rows if row[:1] == ["fixed-0"])
    used_cpus, used_gpus = row.pop(4), row.pop(4)
    assert row == ["fixed-0", "fixed", "spot", "up", "2.5"]
    assert used_cpus.endswith("/1")
    assert used_gpus.endswith("/1")


@pytest.mark.parametrize("command", ["status", "up", "jobs", "dashboard"])
def test_a_pipe_gets_no_colour_codes(sunspot: Sunspot, cluster: ClusterHandle, command: str):
    arguments = [command, "main"] if command == "up" else [command]
    done = sunspot(*arguments)
    assert done.returncode == 0
    assert not ANSI.search(done.stdout + done.stderr)


def test_a_terminal_gets_colours_unless_no_color_is_set(sunspot: Sunspot, cluster: ClusterHandle):
    assert COLOUR.search(in_a_terminal(sunspot, "status"))
    assert not COLOUR.search(in_a_terminal(sunspot, "status", NO_COLOR="1"))


def test_the_dashboard_command_explains_the_token(sunspot: Sunspot, cluster: ClusterHandle):
    done = sunspot("dashboard")
    assert done.stdout.strip() == cluster.job_address
    assert f"cat {cluster.token_path}" in done.stderr


def test_a_port_of_a_running_cluster_is_refused(sunspot: Sunspot, cluster: ClusterHandle):
    port = str(sunspot.folder("main").cluster().gcs_port)
    done = sunspot("up", "solo", "--port", port)
    assert done.returncode == 2
    assert port in done.stderr
    assert "--port" in done.stderr
    assert not sunspot.folder("solo").path.exists()


def test_scale_beyond_the_maximum_is_refused(sunspot: Sunspot, cluster: ClusterHandle):
    done = sunspot("scale", "elastic=9")
    assert done.returncode == 2
    assert "max_workers" in done.stderr
    assert "elastic=9" in done.stderr


@pytest.mark.parametrize("change", ["elastic", "elastic=", "elastic=-1", "=1"])
def test_scale_explains_its_form(sunspot: Sunspot, cluster: ClusterHandle, change: str):
    done = sunspot("scale", change)
    assert done.returncode == 2
    assert "GROUP=N" in done.stderr


def test_an_elastic_group_grows_for_its_work_and_is_scaled_away(
    sunspot: Sunspot, cluster: ClusterHandle
):
    (sunspot.project / "needs_three.py").write_text(NEEDS_THREE_CPUS)
    assert "ran on elastic" in sunspot.ok("submit", "--", "python", "needs_three.py")
    assert "elastic-0" in sunspot.ok("status")
    processes = sunspot.folder("main").processes("elastic-0")
    assert processes

    assert "has 0 workers" in sunspot.ok("scale", "elastic=0:0")
    assert "elastic-0" not in sunspot.ok("status")
    assert sunspot.folder("main").processes("elastic-0") == []
    assert alive(processes) == []
    wait_for("Ray to see the node go", lambda: "elastic-0" not in living_nodes(sunspot))
    assert living_nodes(sunspot).keys() == {"head", "fixed-0"}

    assert "scaled by hand to 0:0; Pulumi.main.yaml says 0:1" in sunspot("up", "main").stderr
    sunspot.ok("scale", "main", "elastic=0:1")
    assert "scaled by hand" not in sunspot("up", "main").stderr


NEEDS_THREE_CPUS = """
import ray

ray.init(logging_level="ERROR")


@ray.remote(num_cpus=3)
def where():
    return ray.get_runtime_context().get_node_labels()["ray.io/node-group"]


print("ran on", ray.get(where.remote()))
"""
