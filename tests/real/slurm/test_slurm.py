"""Clusters in the jobs of a real Slurm, with real Ray; scaling is in the contract."""

from __future__ import annotations

import json
import subprocess

import psutil
import pytest
from ending import name_of, variables_of
from machines.slurm import GPU_NODE, Slurm
from slurm_project import SMALL, Project
from waiting import wait_for

from sunspot.node.slurm.task import CLUSTER_VARIABLE

NODES_PROGRAM = """
import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy as On
ray.init(log_to_driver=False)
task = ray.remote(num_cpus=0)(lambda: ray.get_runtime_context().get_node_id())
nodes = {one["NodeID"]: one for one in ray.nodes() if one["Alive"]}
ran = ray.get([task.options(scheduling_strategy=On(one, soft=False)).remote() for one in nodes])
assert sorted(ran) == sorted(nodes)
print("nodes:", *sorted(one["NodeName"] for one in nodes.values()))
print("resources:", {k: v for k, v in ray.cluster_resources().items() if k in ("CPU", "GPU")})
"""
FOREVER = ("sh", "-c", "echo it began; exec sleep 600")
# Works until it sees a worker drain, as Ray Train does: it keeps what it has, and ends. When it is
# started again, it goes on from there.
DRAINS = """
import os, sys, time
from pathlib import Path
import ray
ray.init(log_to_driver=False)
file = Path(os.environ["SUNSPOT_STORAGE"]) / "count"
count = int(file.read_text()) if file.exists() else 0
# An idle node that drains leaves at once.
busy = [ray.remote(lambda: time.sleep(600)).remote() for _ in range(2)]
print("it began at", count, flush=True)
while not count:
    time.sleep(0.2)
    if ray._private.state.state.get_draining_nodes() or not all(n["Alive"] for n in ray.nodes()):
        file.write_text("17")
        print("drained", flush=True)
        sys.exit(1)
print("done", flush=True)
"""
# Saves all the time, since a preemption gives no notice.
SAVES = """
import os, time
from pathlib import Path
file = Path(os.environ["SUNSPOT_STORAGE"]) / "count"
before = int(file.read_text()) if file.exists() else 0
file.write_text("17")
print("it began at", before, flush=True)
time.sleep(0 if before else 600)
print("done", flush=True)
"""


def program(project: Project, text: str) -> tuple[str, str]:
    """A command that runs this Python on the head."""
    path = project.home / "program.py"
    path.write_text(text)
    return "python3", str(path)


def began(run: subprocess.Popen[str]) -> str:
    """The line with which its command began."""
    assert run.stdout is not None
    assert run.stderr is not None
    printed = ""
    while "it began" not in (line := run.stdout.readline()):
        assert line, f"it ended\n{printed}{run.stderr.read()}"
        printed += line
    return line


def nodes(project: Project, name: str = "dev") -> dict[str, str]:
    found = json.loads(project("status", name, "--json").stdout)["nodes"]
    return {node["name"]: node["state"] for node in found}


def test_a_job_of_two_nodes_ends_with_the_commands_exit_code(project: Project):
    text = f"{NODES_PROGRAM}\nraise SystemExit(7)\n"
    done = project("run", "dev", "--", *program(project, text), timeout=300)
    assert done.returncode == 7, done.stdout + done.stderr
    assert "nodes: head workers-n2" in done.stdout
    assert "'CPU': 2.0" in done.stdout
    project.wait_until_gone()


def test_a_head_that_was_too_slow_is_started_once_more(project: Project):
    """Its task is a client of the cluster by then: Ray does not outlive a fork of that.

    To Ray, a raylet that ended before it was a member was too slow.
    """
    command = program(project, NODES_PROGRAM)
    with project.started("run", "dev", "--", *command) as run:
        # The worker's comes later, and it is a second until this one is a member.
        (raylet,) = wait_for("the head's raylet", lambda: raylets(project), poll_s=0.02)
        raylet.kill()
        printed, said = run.communicate(timeout=300)
    assert run.returncode == 0, printed + said
    assert "took too long to start on this machine: once more" in printed
    assert "nodes: head workers-n2" in printed
    project.wait_until_gone()


def raylets(project: Project) -> list[psutil.Process]:
    here = str(project.shared)
    return [
        process
        for process in psutil.process_iter()
        if name_of(process) == "raylet"
        and variables_of(process).get(CLUSTER_VARIABLE, "").startswith(here)
    ]


def test_a_heterogeneous_job_whose_gpu_is_where_slurm_has_it(project: Project):
    gpu = {"name": "gpu", "min_workers": 1, "max_workers": 1}
    node = {"cpu": 2, "memory_gb": 3, "gpu_count": 1}
    project.write_stack(groups=[gpu | {"worker_nodes": node}], gres="gpu:t4")
    done = project("run", "dev", "--", *program(project, NODES_PROGRAM), timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"gpu-{GPU_NODE}" in done.stdout
    assert "'CPU': 3.0" in done.stdout
    assert "'GPU': 1.0" in done.stdout
    project.wait_until_gone()


def test_two_jobs_on_the_same_nodes_one_cancelled_and_one_over_its_time_limit(
    project: Project, slurm: Slurm
):
    """The limit's notice comes after 255 s at the earliest, so the other job costs no time."""
    both = ["--nodelist=n1,n2"]
    project.write_stack(time="6", notice_s=75, requeue=True, extra=both)
    project.write_stack("other", extra=both)
    with project.started("run", "dev", "--", *program(project, DRAINS)) as limited:
        assert began(limited).endswith("at 0\n")
        with project.started("run", "other", "--", *FOREVER) as cancelled:
            began(cancelled)
            slurm("scancel", project.job("other"))
            cancelled.communicate(timeout=300)
        assert cancelled.returncode not in (0, None)
        assert limited.poll() is None
        assert project.processes()
        printed, said = limited.communicate(timeout=600)
    assert limited.returncode == 0, printed + said
    assert "draining the workers" in printed
    assert printed.index("drained") < printed.index("it began at 17") < printed.index("done")
    project.wait_until_gone()


def test_after_preemption_it_begins_again_from_its_checkpoint(project: Project, slurm: Slurm):
    project.write_stack(requeue=True)
    with project.started("run", "dev", "--", *program(project, SAVES)) as run:
        assert began(run).endswith("at 0\n")
        job = project.job()
        urgent = ["--partition=urgent", "--nodes=3", "--exclusive", "--wrap=true"]
        slurm("sbatch", "--output=/dev/null", *urgent)
        wait_for("the preemption", lambda: slurm.state(job) in {"PENDING", "REQUEUED"}, 300)
        printed, said = run.communicate(timeout=300)
    assert run.returncode == 0, printed + said
    assert "it began at 17" in printed
    assert "done" in printed
    project.wait_until_gone()


def test_a_node_that_is_set_down_takes_its_own_work_with_it_and_the_heads_all(
    project: Project, slurm: Slurm
):
    two = {"name": "workers", "min_workers": 2, "max_workers": 2, "worker_nodes": SMALL}
    project.write_stack(groups=[two])
    project.ok("up", "dev")
    assert set(nodes(project)) == {"head", "workers-n2", "workers-n3"}
    slurm.set_node("n3", "down")
    wait_for("the loss", lambda: nodes(project).get("workers-n3") != "up", 120)
    found = nodes(project)
    assert (found["head"], found["workers-n2"]) == ("up", "up")
    done = project("submit", "--stack", "dev", "--", "true")
    assert done.returncode == 0

    job = project.job()
    slurm.set_node("n1", "down")
    wait_for("the end of the job", lambda: slurm.state(job) not in {"RUNNING", "COMPLETING"}, 120)
    status = project("status", "dev", "--json")
    assert status.returncode == 1
    assert job in json.loads(status.stdout)["problem"]
    project.ok("down", "dev")


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"partition": "moon"}, "moon"),
        ({"time": "2:00:00"}, "2:00:00"),
        ({"gres": "gpu:a100"}, "gpu:a100"),
    ],
    ids=str,
)
def test_what_slurm_does_not_have_is_refused_before_anything_is_submitted(
    project: Project, slurm: Slurm, settings, said
):
    gpu = {"name": "gpu", "min_workers": 1, "max_workers": 1}
    project.write_stack(groups=[gpu | {"worker_nodes": SMALL | {"gpu_count": 1}}], **settings)
    before = slurm("squeue", "--noheader", "--states=all")
    done = project("up", "dev")
    assert (done.returncode, said in done.stderr) == (2, True)
    assert slurm("squeue", "--noheader", "--states=all") == before


def test_another_ray_on_a_node_is_told(project: Project):
    wrapper = project.home / "python"
    wrapper.write_text('#!/bin/sh\nexec /usr/bin/python3 "$@"\n')
    wrapper.chmod(0o755)
    project.write_stack(python=str(wrapper))
    done = project("up", "dev")
    assert done.returncode == 2
    assert "there is no Ray" in done.stderr


def test_too_small_an_allocation_is_told(project: Project, slurm: Slurm):
    script = project.home / "dev.sh"
    script.write_text(project.ok("manifest", "dev"))
    output = project.home / "out"
    job = slurm(
        "sbatch", "--parsable", "--nodes=1", f"--output={output}", str(script), "true"
    ).strip()
    wait_for("its end", lambda: slurm.state(job) == "FAILED", 300)
    assert "1 of the 2 nodes" in output.read_text()
