"""Clusters in the jobs of a real Slurm, with real Ray; scaling is in the contract."""

from __future__ import annotations

import json
import signal
import subprocess

import pytest
from machines.slurm import GPU_NODE, Slurm
from slurm_project import SMALL, Project
from waiting import wait_for

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
# Counts up to 100 in a file, from where an earlier start left it.
COUNTER = """
import os, signal, sys, time
from pathlib import Path
file = Path(os.environ["SUNSPOT_STORAGE"]) / "count"
count = int(file.read_text()) if file.exists() else 0
print("begins at", count, flush=True)
signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
while count < LIMIT:
    count += 1
    file.write_text(str(count))
    time.sleep(1)
print("done", flush=True)
"""


def program(project: Project, text: str) -> tuple[str, str]:
    """A command that runs this Python on the head."""
    path = project.home / "program.py"
    path.write_text(text)
    return "python3", str(path)


def began(run: subprocess.Popen[str]) -> None:
    assert run.stdout is not None
    assert run.stderr is not None
    printed = ""
    while "it began" not in (line := run.stdout.readline()):
        assert line, f"it ended\n{printed}{run.stderr.read()}"
        printed += line


def nodes(project: Project, name: str = "dev") -> dict[str, str]:
    found = json.loads(project("status", name, "--json").stdout)["nodes"]
    return {node["name"]: node["state"] for node in found}


def test_a_job_of_two_nodes_ends_with_the_commands_exit_code(project: Project):
    text = f"{NODES_PROGRAM}\nraise SystemExit(7)\n"
    done = project("run", "dev", "--", *program(project, text), timeout=300)
    assert done.returncode == 7, done.stdout + done.stderr
    assert "nodes: head workers-n2" in done.stdout
    assert "'CPU': 2.0" in done.stdout
    assert not project.processes()


def test_a_heterogeneous_job(project: Project):
    large = {"name": "large", "min_workers": 1, "max_workers": 1}
    project.write_stack(groups=[large | {"worker_nodes": {"cpu": 2, "memory_gb": 3}}])
    done = project("run", "dev", "--", *program(project, NODES_PROGRAM), timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "'CPU': 3.0" in done.stdout


def test_the_gpu_is_where_slurm_has_it(project: Project):
    gpu = {"name": "gpu", "min_workers": 1, "max_workers": 1}
    project.write_stack(groups=[gpu | {"worker_nodes": SMALL | {"gpu_count": 1}}], gres="gpu:t4")
    done = project("run", "dev", "--", *program(project, NODES_PROGRAM), timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"gpu-{GPU_NODE}" in done.stdout
    assert "'GPU': 1.0" in done.stdout


def test_two_jobs_on_one_node_and_one_is_cancelled(project: Project, slurm: Slurm):
    project.write_stack(groups=[], extra=["--nodelist=n1"])
    with (
        project.started("run", "dev", "--", *FOREVER) as first,
        project.started("run", "dev", "--", *FOREVER) as second,
    ):
        began(first)
        began(second)
        job = project.job()  # the newest is the second's
        slurm("scancel", job)
        second.communicate(timeout=120)
        assert second.returncode != 0
        assert first.poll() is None
        assert project.processes()
        first.send_signal(signal.SIGINT)
        first.communicate(timeout=120)
    assert first.returncode == 130
    assert not project.processes()


def test_over_the_time_limit_it_is_drained_and_begins_again_from_its_checkpoint(project: Project):
    project.write_stack(time="2", notice_s=60, requeue=True)
    command = program(project, COUNTER.replace("LIMIT", "120"))
    done = project("run", "dev", "--", *command, timeout=500)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "begins at 0" in done.stdout
    assert "draining the workers" in done.stdout
    assert done.stdout.count("begins at") >= 2
    assert "done" in done.stdout


def test_after_preemption_it_begins_again_from_its_checkpoint(project: Project, slurm: Slurm):
    project.write_stack(requeue=True)
    command = program(project, COUNTER.replace("LIMIT", "20").replace("begins", "it began, begins"))
    with project.started("run", "dev", "--", *command) as run:
        began(run)
        job = project.job()
        urgent = ["--partition=urgent", "--nodes=3", "--exclusive", "--wrap=sleep 5"]
        slurm("sbatch", "--output=/dev/null", *urgent)
        wait_for("the preemption", lambda: slurm.state(job) in {"PENDING", "REQUEUED"}, 60)
        printed, said = run.communicate(timeout=300)
    assert run.returncode == 0, printed + said
    assert "begins at 0" not in printed  # that line was read above; the second start is further
    assert "done" in printed


def test_a_node_that_is_set_down_takes_only_its_own_work_with_it(project: Project, slurm: Slurm):
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
    project.ok("down", "dev")


def test_the_heads_node_is_lost(project: Project, slurm: Slurm):
    project.ok("up", "dev")
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
    wait_for("its end", lambda: slurm.state(job) == "FAILED", 60)
    assert "1 of the 2 nodes" in output.read_text()
