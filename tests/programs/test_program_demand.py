"""Programs that ask for what the cluster cannot give, or not now."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from harness import Sunspot
from test_program_addresses import read_until

from sunspot.ray.handle import ClusterHandle

Brought = Callable[[str], Path]


def submit(program: Path, name: str) -> tuple[str, ...]:
    folder = ("--working-dir", str(program.parent), "--name", name)
    return ("submit", *folder, "--", "python", program.name)


def test_a_placement_group_that_can_never_be_is_told_by_submit_and_status(
    sunspot: Sunspot, brought: Brought
):
    with sunspot.started(*submit(brought("wants_more_gpus.py"), "gpus")) as following:
        assert following.stderr is not None
        told = read_until(following.stderr, "can never give")
        assert "'training'" in told
        assert "asked 4 x {CPU: 1, GPU: 1}, the largest cluster holds 1" in told
        waiting = json.loads(sunspot.ok("status", "programs", "--json"))["waiting"]
        assert [one["name"] for one in waiting if one["never"]] == ["training"]
        sunspot.ok("stop", "gpus", "--stack", "programs")


def test_a_task_that_no_node_can_hold_fails_at_once(sunspot: Sunspot, brought: Brought):
    done = sunspot(*submit(brought("wants_a_large_node.py"), "large"))
    assert done.returncode == 1
    assert "TaskUnschedulableError" in done.stdout


def test_a_full_cluster_is_noted_once_and_nothing_cries(sunspot: Sunspot, brought: Brought):
    done = sunspot(*submit(brought("fills_the_cluster.py"), "full"))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "5 tasks ran" in done.stdout
    assert done.stderr.count("waiting for free CPUs: 5 tasks 'task'") == 1
    assert "No available node types" not in done.stdout + done.stderr
    assert "can never" not in done.stderr


@pytest.mark.usefixtures("cluster")
def test_the_timeline_is_written_where_the_user_is(
    sunspot: Sunspot, brought: Brought, tmp_path: Path
):
    sunspot.ok(*submit(brought("never_calls_init.py"), "traced"))
    done = sunspot("timeline", "programs", "--job", "traced", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    (file,) = tmp_path.glob("timeline-programs-*.json")
    assert "where" in {
        event["args"].get("func_or_class_name") for event in json.loads(file.read_text())
    }


def test_the_cluster_of_a_file_takes_no_project(sunspot: Sunspot, cluster: ClusterHandle):
    assert list(sunspot.project.glob("Pulumi*")) == []
    assert cluster.name == "programs"
