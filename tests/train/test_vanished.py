"""A placement group whose node or job has gone for good is taken back, and only such a one."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from training import CLUSTER, DEADLINE_S, ROOT, Training

from sunspot.spec_values import HEAD

OURS, THEIRS = "ours", "theirs"


def environment(training: Training) -> dict[str, str]:
    """Of a driver that finds workloads/."""
    handle = training.sunspot.target.handle(CLUSTER)
    path = {"PYTHONPATH": str(ROOT / "workloads")}
    return training.sunspot.environment() | handle.environment() | path


@contextlib.contextmanager
def driver(
    training: Training, *arguments: str, program: str = "group_driver.py"
) -> Iterator[subprocess.Popen[str]]:
    """A driver of the cluster whose placement group is placed; it ends with the block."""
    process = subprocess.Popen(
        [sys.executable, str(Path(__file__).with_name(program)), *arguments],
        env=environment(training),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        try:
            assert process.stdout
            assert process.stdout.readline() == "ready\n"
            yield process
        finally:
            process.kill()


def test_a_group_whose_node_has_gone_is_taken_back(training: Training):
    # Other tests have lost nodes, whose records stay.
    nodes = training.sunspot.target.nodes(CLUSTER)
    node = next(one.name for one in nodes if one.state == "up" and one.group != HEAD)
    with driver(training, THEIRS, node), driver(training, OURS, node, THEIRS) as ours:
        training.kill(node)
        printed, _ = ours.communicate(timeout=DEADLINE_S)
    told = json.loads(printed.splitlines()[-1])
    lost, waits = "RESCHEDULING", "PENDING"
    before = {OURS: lost, THEIRS: lost, f"{OURS}-waits": waits, f"{THEIRS}-waits": waits}
    # Ray remembers the groups of other tests too.
    found = {when: {name: told[when][name] for name in before} for when in ("before", "after")}
    assert found == {"before": before, "after": before | {OURS: "REMOVED"}}


def test_what_a_dead_job_left_is_removed_and_not_what_a_detached_actor_holds(training: Training):
    with driver(training, "killed", program="dead_job_driver.py"):
        pass
    looked = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("dead_job_driver.py")), "look"],
        env=environment(training),
        capture_output=True,
        text=True,
        check=True,
        timeout=DEADLINE_S,
    )
    told = json.loads(looked.stdout.splitlines()[-1])
    assert told["before"]["held"] == told["after"]["held"] == "CREATED"
    left = {name: state for name, state in told["after"].items() if name.startswith("left-")}
    assert left
    assert set(left.values()) == {"REMOVED"}
