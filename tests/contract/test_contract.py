"""What the command does with clusters on every target, and that nothing is left of them.

The tests at one site build on each other's clusters, in the order in which they stand.
"""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from refusals import NOTHING_UP, ONE_IS_UP, Refusal
from sites import BEGUN, FOREVER, Cluster, Site
from sunspot_command import DEADLINE_S, fresh
from waiting import wait_for

import sunspot
from sunspot.spec_values import HEAD
from sunspot.targets import abilities
from sunspot.targets.protocol import NodeLogs, Shells
from sunspot.targets.scaling import Scaling

# Refused


@pytest.mark.parametrize("refusal", NOTHING_UP, ids=str)
def test_what_is_refused_where_nothing_is_up(site: Site, refusal: Refusal):
    before = site.census()
    assert_refused(site, refusal)
    assert site.census() == before


def assert_refused(site: Site, refusal: Refusal) -> None:
    done = site(*refusal.arguments)
    assert done.returncode == refusal.code
    if refusal.ability and not abilities.find(site.place, refusal.ability):
        assert_not_supported(site, done)
    else:
        error = done.stderr[done.stderr.index("error: ") :].replace(str(site.project), "PROJECT")
        assert error.startswith(f"error: {refusal.error}")


def assert_not_supported(site: Site, done: subprocess.CompletedProcess[str]) -> None:
    assert done.returncode == 2
    assert done.stderr.startswith(f"error: target '{site.place.name}' does not support ")


# Cut off


@pytest.fixture
def before(site: Site) -> Iterator[set[str]]:
    """What there is before the test. It takes the cluster "two" away, also if the test fails."""
    census = site.census()
    yield census
    if site.census() != census:
        site("down", "two")


def test_ctrl_c_during_up_leaves_nothing_or_says_what_stays(
    site: Site, before: set[str], stage: str
):
    with site.at_stage(stage, "two") as up:
        os.killpg(up.pid, signal.SIGINT)
        _, errors = up.communicate(timeout=DEADLINE_S)
    assert up.returncode == 130
    assert "error: interrupted" in errors
    assert "Traceback" not in errors
    if site.census() != before:
        assert "sunspot down two" in errors
    site.ok("down", "two")
    assert site.census() == before


def test_ctrl_c_at_the_beginning_lets_a_command_go_on_that_said_what_it_waits_for(
    site: Site, before: set[str]
):
    with site.at_stage(BEGUN, "two") as up:
        up.send_signal(signal.SIGSTOP)  # it would be done before a slow machine looks
        with site.started("down", "two") as down:
            assert down.stderr is not None
            told = down.stderr.readline()
            up.send_signal(signal.SIGCONT)
            os.killpg(up.pid, signal.SIGINT)
            up.communicate(timeout=DEADLINE_S)
            down.communicate(timeout=DEADLINE_S)
    assert f"waiting for process {up.pid}" in told
    assert (up.returncode, down.returncode) == (130, 0)
    assert site.census() == before


def test_down_takes_away_what_a_killed_up_left(site: Site, before: set[str]):
    with site.at_stage(site.stages[0], "two") as up:
        up.kill()
        up.wait()
    assert site.census() != before
    site.ok("down", "two")
    assert site.census() == before


# One cluster


def test_up_says_how_to_reach_the_cluster_and_keeps_its_token_to_itself(
    site: Site, cluster: Cluster
):
    assert f"one is up ({site.place.name})" in cluster.printed
    lines = map(str.strip, cluster.printed.splitlines())
    exports = (line.removeprefix("export ") for line in lines if line.startswith("export "))
    variables = dict(line.split("=", 1) for line in exports)
    assert variables["RAY_API_SERVER_ADDRESS"] == site.status("one")["job_address"]
    token = Path(variables["RAY_AUTH_TOKEN_PATH"])
    assert stat.S_IMODE(token.stat().st_mode) == 0o600
    assert token.read_text() not in cluster.printed


def test_status_as_json(site: Site, cluster: Cluster):
    status = site.status("one")
    assert (status["name"], status["target"]) == ("one", site.place.name)
    assert status["problem"] is None
    assert status["jobs"] == []
    head, *workers = status["nodes"]
    assert (head["group"], head["market"], head["state"]) == (HEAD, "on-demand", "up")
    assert head["cpus"] == site.head_cpus
    groups = site.cluster.get("scaling_groups", [])
    assert [(node["group"], node["market"], node["state"]) for node in workers] == [
        (group["name"], group["market"], "up")
        for group in groups
        for _ in range(group["min_workers"])
    ]


def lasting(status: dict[str, Any]) -> dict[str, Any]:
    """A status without what is in use, which Ray's dashboard learns some seconds later."""
    nodes = [node | {"used": None} for node in status["nodes"]]
    return status | {"nodes": nodes}


def test_a_second_up_finds_the_cluster_as_it_is(site: Site, cluster: Cluster):
    before, raylets = lasting(site.status("one")), site.pids("raylet")
    assert "one is up" in site.ok("up", "one")
    assert lasting(site.status("one")) == before
    assert site.pids("raylet") == raylets


def test_submit_prints_the_jobs_output_and_ends_with_its_exit_code(site: Site, cluster: Cluster):
    done = site.submit("--", "python", "-c", "print('from', 'the job'); exit(3)")
    assert "from the job\n" in done.stdout
    assert "error: " in done.stderr
    assert done.returncode == 3


@pytest.fixture
def job_name() -> str:
    """A job's name that no other test has."""
    return fresh("job")


def test_a_detached_job_is_listed_and_followed_to_its_end(
    site: Site, cluster: Cluster, job_name: str
):
    job = ("python", "-c", "print('far', 'away'); exit(4)")
    assert site.submit("--detach", "--name", job_name, "--", *job).stdout == f"{job_name}\n"
    followed = site("logs", job_name, "-f")
    assert "far away\n" in followed.stdout
    assert followed.returncode == 4
    jobs = {job["id"]: job for job in json.loads(site.ok("jobs", "--json"))}
    assert (jobs[job_name]["status"], jobs[job_name]["exit_code"]) == ("FAILED", 4)
    assert "had ended already" in site.ok("stop", job_name)


def test_stop_ends_a_job(site: Site, cluster: Cluster, job_name: str):
    site.submit("--detach", "--name", job_name, "--", *FOREVER)
    wait_for("the job to begin", lambda: "it began" in site("logs", job_name).stdout)
    assert "STOPPED" in site.ok("stop", job_name)
    assert site("logs", job_name, "-f").returncode == 130


def test_ctrl_c_stops_the_job_that_submit_follows(site: Site, cluster: Cluster, job_name: str):
    arguments = ("submit", "--working-dir", str(site.empty), "--name", job_name, "--", *FOREVER)
    with site.started(*arguments) as submit:
        assert submit.stdout is not None
        while "it began" not in (line := submit.stdout.readline()):
            assert line, "it ended"
        submit.send_signal(signal.SIGINT)
        submit.communicate(timeout=DEADLINE_S)
    assert submit.returncode == 130
    (job,) = (job for job in site.status("one")["jobs"] if job["id"] == job_name)
    assert job["status"] == "STOPPED"


def test_the_log_of_the_head(site: Site, cluster: Cluster):
    done = site("logs", "--node", "head")
    if abilities.find(site.place, NodeLogs):
        assert "Ray runtime started" in done.stdout
        assert done.returncode == 0
    else:
        assert_not_supported(site, done)


def test_a_command_on_the_head(site: Site, cluster: Cluster):
    done = site("ssh", "--", "exit 5")
    if abilities.find(site.place, Shells):
        assert done.returncode == 5
    else:
        assert_not_supported(site, done)


def test_scale_does_it_or_changes_nothing(site: Site, cluster: Cluster):
    before = lasting(site.status("one"))["nodes"]
    done = site("scale", "workers=2")
    after = lasting(site.status("one"))["nodes"]
    if done.returncode == 0:
        assert [node["group"] for node in after] == [HEAD, "workers", "workers"]
        site.ok("scale", "workers=1")
        after = lasting(site.status("one"))["nodes"]
    elif abilities.find(site.place, Scaling):
        # Its stand-in for Azure has no login (stand_in_azure.py).
        assert (site.place.name, done.returncode) == ("azure", 1)
        assert "accessToken" in done.stderr
    else:
        assert_not_supported(site, done)
    assert after == before


@pytest.mark.parametrize("refusal", ONE_IS_UP, ids=str)
def test_what_is_refused_where_one_is_up(site: Site, cluster: Cluster, refusal: Refusal):
    assert_refused(site, refusal)


# Two clusters


@pytest.fixture(scope="session")
def second(site: Site, cluster: Cluster) -> Iterator[None]:
    """The cluster "two", up beside the first. One of the next tests takes it down."""
    site.ok("up", "two")
    yield
    site("down", "two")


def test_two_clusters_at_once(site: Site, second: None):
    one, two = site.status("one"), site.status("two")
    assert one["job_address"] != two["job_address"]
    name = fresh("of-two")
    done = site.submit("--stack", "two", "--name", name, "--", "true")
    assert done.returncode == 0
    assert name not in [job["id"] for job in site.status("one")["jobs"]]
    nameless = site("status")
    assert nameless.returncode == 2
    assert "one, two" in nameless.stderr


def test_a_broken_record_is_told_and_does_not_keep_the_cluster_up(site: Site, second: None):
    site.record("two").write_text("{")
    status = site("status", "two", "--json")
    assert status.returncode == 1
    assert "the records of 'two' are broken" in json.loads(status.stdout)["problem"]
    assert "two is down" in site.ok("down", "two")
    assert not site.record("two").parent.exists()
    assert site.status("one")["problem"] is None


# Down


def test_down_leaves_nothing(site: Site, cluster: Cluster):
    ports, since = site.ports(), time.time()
    assert ports
    printed = site.ok("down", "one")
    assert "one is down" in printed
    assert site.census() == cluster.before
    assert site.held_ports(ports, since) == []


def test_a_second_down_finds_nothing_to_do(site: Site):
    before = site.census()
    assert "nothing to do" in site.ok("down", "one")
    assert "nothing to do" in site.ok("down")
    assert site.census() == before


# A target from outside the package


def test_the_toy_target_is_small_and_nothing_else_knows_it():
    here = Path(__file__).parent
    assert len((here / "toy_target.py").read_text().splitlines()) < 120
    lines = (here / "with_toy.py").read_text().splitlines()
    assert [line for line in lines if "toy" in line.partition('"""')[0]] == [
        'registry.PACKAGES["toy"] = "toy_target"'
    ]
    package = Path(sunspot.__file__).parent
    assert not [path for path in package.rglob("*.py") if "toy" in path.read_text()]
