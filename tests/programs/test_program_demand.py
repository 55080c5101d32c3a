"""Programs that ask for what the cluster cannot give, or not now."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from harness import Sunspot
from sunspot_command import DEADLINE_S, fresh
from test_program_addresses import read_until
from waiting import wait_for

from sunspot.ray.handle import ClusterHandle

Brought = Callable[[str], Path]


def submit(program: Path, name: str, *flags: str) -> tuple[str, ...]:
    folder = ("--working-dir", str(program.parent), "--name", name)
    return ("submit", *folder, *flags, "--", "python", program.name)


def test_a_placement_group_that_can_never_be_is_told_by_submit_and_status(
    sunspot: Sunspot, brought: Brought
):
    name = fresh("gpus")

    def never() -> list[str]:
        waiting = json.loads(sunspot.ok("status", "programs", "--json"))["waiting"]
        return [one["name"] for one in waiting if one["never"]]

    with sunspot.started(*submit(brought("wants_more_gpus.py"), name)) as following:
        assert following.stderr is not None
        told = read_until(following.stderr, "can never give")
        assert "'training'" in told
        assert "asked 4 x {CPU: 1, GPU: 1}, the largest cluster holds 1" in told
        assert wait_for("status to tell", never, poll_s=1) == ["training"]
        sunspot.ok("stop", name, "--stack", "programs")


def test_a_task_that_no_node_can_hold_fails_at_once(sunspot: Sunspot, brought: Brought):
    done = sunspot(*submit(brought("wants_a_large_node.py"), fresh("large")))
    assert done.returncode == 1
    assert "TaskUnschedulableError" in done.stdout


def test_a_full_cluster_is_noted_once_and_nothing_cries(
    sunspot: Sunspot, brought: Brought, tmp_path: Path
):
    go_on, note = tmp_path / "go-on", "waiting for free CPUs: "
    command = submit(brought("fills_the_cluster.py"), fresh("full"), f"--env=GO_ON={go_on}")
    with sunspot.started(*command) as following:
        assert following.stdout is not None
        assert following.stderr is not None
        told = ""
        # On a busy machine, it is what waits first: the actors.
        while note not in told:
            line = following.stderr.readline()
            assert line, told + following.stdout.read()
            told += line
        go_on.touch()
        # Not by `communicate`, which leaves out what came with the lines that were read.
        told += following.stderr.read()
        printed = following.stdout.read()
        following.wait(DEADLINE_S)
    assert following.returncode == 0, printed + told
    assert "5 tasks ran" in printed
    assert told.count(note) == 1
    assert "No available node types" not in printed + told
    assert "can never" not in told


@pytest.mark.usefixtures("cluster")
def test_timeline_and_report_are_written_where_the_user_is(
    sunspot: Sunspot, brought: Brought, tmp_path: Path
):
    name = fresh("traced")
    sunspot.ok(*submit(brought("never_calls_init.py"), name))
    done = sunspot("timeline", "programs", "--job", name, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    (file,) = tmp_path.glob("timeline-programs-*.json")
    assert "where" in {
        event["args"].get("func_or_class_name") for event in json.loads(file.read_text())
    }
    done = sunspot("report", "programs", "--job", name, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    page = (tmp_path / "sunspot-report" / "index.html").read_text()
    assert "SUCCEEDED: python never_calls_init.py" in page
    assert f"{name}: " in page  # a bar says whose task it is


def test_the_cluster_of_a_file_takes_no_project(sunspot: Sunspot, cluster: ClusterHandle):
    assert list(sunspot.project.glob("Pulumi*")) == []
    assert cluster.name == "programs"
