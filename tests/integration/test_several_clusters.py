"""A second cluster beside the shared one: it loses a worker, then its head, then it is taken away.

The tests build on each other's cluster in the order in which they stand.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness import ANSI, FOREVER, Sunspot, alive, kill_node, what_is_left
from sunspot_command import fresh
from waiting import wait_for

from sunspot.node.local.folder import HEAD
from sunspot.ray.handle import ClusterHandle

WAITS_FOR_A_FILE = """
import pathlib, sys, time
print("begun", flush=True)
while not pathlib.Path(sys.argv[1]).exists():
    time.sleep(0.05)
print("went on")
"""


@pytest.fixture(scope="module")
def pair(sunspot: Sunspot, cluster: ClusterHandle) -> Iterator[ClusterHandle]:
    """A head and one fixed worker, up beside the shared cluster."""
    try:
        sunspot.ok("up", "pair")
        yield sunspot.target.handle("pair")
    finally:
        sunspot.ok("down", "pair")


@pytest.fixture(scope="module")
def headless(sunspot: Sunspot, pair: ClusterHandle) -> Sunspot:
    """The second cluster after its head died."""
    kill_node(sunspot.folder("pair"), HEAD)
    wait_for("the head's end", lambda: not sunspot.folder("pair").is_running(HEAD))
    return sunspot


def states(sunspot: Sunspot) -> dict[str, str]:
    return {node.name: node.state for node in sunspot.target.nodes("pair")}


def test_the_token_of_one_does_not_open_the_other(sunspot: Sunspot, pair: ClusterHandle):
    assert sunspot.target.handle("main").token() != pair.token()


@pytest.mark.parametrize(
    "command", [["jobs"], ["submit", "--", "true"], ["scale", "fixed=1"], ["down"]]
)
def test_a_command_that_names_none_says_which_are_up(
    sunspot: Sunspot, pair: ClusterHandle, command: list[str]
):
    done = sunspot(*command)
    assert done.returncode == 2
    assert "main, pair" in done.stderr


def test_a_killed_worker_is_lost_and_replaced_and_jobs_go_on(
    sunspot: Sunspot, pair: ClusterHandle, tmp_path: Path
):
    (tmp_path / "waits.py").write_text(WAITS_FOR_A_FILE)
    command, name = ("python", "waits.py", str(tmp_path / "go")), fresh("through")
    sunspot.ok(
        "submit", "--stack", "pair", "--detach", "--name", name, "--", *command, cwd=tmp_path
    )
    wait_for("the job to begin", lambda: "begun" in sunspot.client("pair").logs(name))

    kill_node(sunspot.folder("pair"), "fixed-0")
    wait_for("the worker to be lost", lambda: states(sunspot)["fixed-0"] == "lost")
    lost = json.loads(sunspot.ok("status", "pair", "--json"))["nodes"][-1]
    assert (lost["name"], lost["state"]) == ("fixed-0", "lost")
    assert lost["log"]
    shown = sunspot.ok("status", "pair")
    assert "fixed-0 is lost" in shown
    assert lost["log"].splitlines()[-1].strip() in shown

    wait_for("another worker", lambda: states(sunspot).get("fixed-1") == "up")
    (tmp_path / "go").touch()
    followed = sunspot("logs", "--stack", "pair", name, "-f")
    assert "went on" in followed.stdout
    assert followed.returncode == 0


def test_the_log_of_a_lost_worker_has_no_colour_codes_in_a_pipe(
    sunspot: Sunspot, pair: ClusterHandle
):
    if states(sunspot).get("fixed-0") != "lost":  # the test above was left out
        kill_node(sunspot.folder("pair"), "fixed-0")
        wait_for("the worker to be lost", lambda: states(sunspot)["fixed-0"] == "lost")
    shown = sunspot.ok("status", "pair")
    assert "The end of its log" in shown
    assert not ANSI.search(shown)
    assert not ANSI.search(sunspot.folder("pair").log_tail("fixed-0"))


@pytest.mark.parametrize(
    "command",
    [
        ["status", "pair"],
        ["status", "pair", "--json"],
        ["submit", "--stack", "pair", "--", "true"],
        ["jobs", "--stack", "pair"],
        ["logs", "--stack", "pair", "through"],
        ["logs", "--stack", "pair", "through", "-f"],
        ["stop", "--stack", "pair", "through"],
        ["dashboard", "pair"],
        ["scale", "--stack", "pair", "fixed=0"],
        ["up", "pair"],
    ],
    ids=" ".join,
)
def test_with_a_dead_head_every_command_says_so_and_what_to_do(
    headless: Sunspot, command: list[str]
):
    done = headless(*command)
    assert done.returncode == 1
    assert "the head of 'pair' is dead" in done.stderr
    assert "sunspot down pair" in done.stderr


def test_status_shows_the_dead_head_as_lost(headless: Sunspot):
    assert "lost" in headless("status", "pair").stdout
    status = json.loads(headless("status", "pair", "--json").stdout)
    assert {node["name"]: node["state"] for node in status["nodes"]}[HEAD] == "lost"
    assert "is dead" in status["problem"]


def test_down_of_one_leaves_the_other_and_its_job(headless: Sunspot, tmp_path: Path):
    sunspot, folder = headless, headless.folder("pair")
    name = fresh("stays")
    sunspot.ok(
        "submit", "--stack", "main", "--detach", "--name", name, "--", *FOREVER, cwd=tmp_path
    )
    wait_for("the job to begin", lambda: "begun" in sunspot.client("main").logs(name))
    processes = folder.processes()

    assert "pair is down" in sunspot.ok("down", "pair")

    assert what_is_left(folder) == []
    assert alive(processes) == []
    assert sunspot.target.names() == ["main"]
    assert sunspot.job("main", name).status == "RUNNING"
    assert {node["state"] for node in json.loads(sunspot.ok("status", "--json"))["nodes"]} == {"up"}
    sunspot.ok("stop", name)
