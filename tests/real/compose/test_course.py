"""The course on one host, as docs/one-host.md has it, with logical GPUs instead of real ones.

A job with a GPU, one that no node can hold, training with checkpoints in the object store, a worker
that is killed while it trains, three jobs on halves of GPUs, and a search on a half.
"""

import json
import os
from collections.abc import Iterator
from pathlib import Path

import compose_site
import pytest
from compose_engine import Behind
from compose_images import services
from machines import PROJECT
from machines.needs import NEED_DOCKER
from machines.processes import DEADLINE_S
from sites import Site
from sunspot_command import fresh
from waiting import wait_for

from sunspot.targets.compose import plan

# With torch, from the package index.
pytestmark = (
    pytest.mark.built("cuda")
    if os.environ.get(NEED_DOCKER)
    else pytest.mark.skip(f"takes 3 GB of packages: set {NEED_DOCKER}=1")
)

NAME = "course"
GROUP = {"cpu": 2, "memory_gb": 6, "gpu_count": 1}
# For the jobs' own processes, which import torch.
HEAD = {"cpu": 1, "memory_gb": 8}
SMALL = ("--size", "32")
TRAIN = ("python", "workloads/train.py", "--gpus-per-worker", "1")
# Enough that the training still runs when its worker is killed.
EPOCHS = 12
# On the head, where a job's own process runs.
OUT = "/tmp/killed.json"  # noqa: S108


@pytest.fixture(scope="module")
def up(site: Site, images: dict[str, str]) -> Iterator[Site]:
    """A cluster with two workers, each with a logical GPU, in this project's folder."""
    settings = compose_site.config(images["cuda"], services(images), gpu="none")
    shape = {**compose_site.cluster("gpu", gpus=1, minimum=2, maximum=2), "head_node": HEAD}
    shape["scaling_groups"][0]["worker_nodes"] = GROUP
    with compose_site.up(site, NAME, shape, settings) as made:
        yield made


def submit(site: Site, *arguments: str):
    return site(
        *("submit", "--stack", NAME, "--working-dir", str(PROJECT), *arguments), timeout=DEADLINE_S
    )


def test_a_job_gets_a_gpu(up: Site) -> None:
    done = submit(up, "--num-gpus", "1", "--", "python", "-c", "print('with', 'a GPU')")
    assert "with a GPU" in done.stdout


def test_a_job_that_no_node_can_hold_is_refused(up: Site) -> None:
    done = submit(up, "--num-gpus", "2", "--", "python", "-c", "0")
    assert done.returncode == 2
    assert "GPU: asked 2" in done.stderr


def test_training_goes_on_when_its_worker_is_killed(up: Site, behind: Behind) -> None:
    name = fresh("killed")
    run = ("--name", name, "--out", OUT, "--epochs", str(EPOCHS))
    job = submit(up, "--detach", "--name", name, "--", *TRAIN, *run, *SMALL)
    assert job.returncode == 0, job.stderr
    log = ("logs", name, "--stack", NAME)
    wait_for("an epoch", lambda: f"epoch 1 of {EPOCHS}:" in up(*log).stdout, DEADLINE_S)
    busy = node_in_use(up)
    label = f"label=com.docker.compose.project={plan.project(NAME)}"
    service = f"label=com.docker.compose.service={busy}"
    found = behind.docker("ps", "--quiet", "--filter", label, "--filter", service).strip()
    behind.docker("kill", found)
    done = up(*log, "--follow", timeout=DEADLINE_S)
    assert done.returncode == 0, done.stdout
    assert f"epoch {EPOCHS} of {EPOCHS}:" in done.stdout
    # It began again with what was stored, on the worker that was left.
    first, second = json.loads(up.ok("ssh", NAME, "--", f"cat {OUT}"))["attempts"][:2]
    assert first["from"]["epoch"] == 0
    assert second["from"]["epoch"] >= 1
    states = {node["name"]: node["state"] for node in up.status(NAME)["nodes"]}
    assert states[busy] == "lost"
    up.ok("up", NAME)


def node_in_use(site: Site) -> str:
    """The node whose GPU a training has."""
    used = {node["name"]: node["used"].get("GPU") for node in site.status(NAME)["nodes"]}
    (busy,) = [name for name, amount in used.items() if amount]
    return busy


def test_checkpoints_are_in_the_bucket(up: Site, behind: Behind) -> None:
    project = plan.project(NAME)
    mounted = behind.docker("volume", "inspect", f"{project}_s3")
    folder = Path(json.loads(mounted)[0]["Mountpoint"]) / "ray"
    assert list(folder.glob("killed-*/**/checkpoint_*"))


def test_three_jobs_share_two_gpus(up: Site) -> None:
    names = [fresh(f"half-{number}") for number in (1, 2, 3)]
    for name in names:
        half = ("--detach", "--name", name, "--num-gpus", "0.5")
        submit(up, *half, "--", "python", "-c", "import time; time.sleep(600)")
    wait_for("all to run at once", lambda: running(up) >= set(names), DEADLINE_S)
    wait_for("their halves", lambda: gpus_in_use(up) == 1.5, seen=lambda: str(gpus_in_use(up)))
    for name in names:
        up.ok("stop", name, "--stack", NAME)


def running(site: Site) -> set[str]:
    """The names of the jobs that run."""
    return {job["id"] for job in site.status(NAME)["jobs"] if job["status"] == "RUNNING"}


def gpus_in_use(site: Site) -> float:
    """How many GPUs jobs have; a node tells it after a moment."""
    return sum(node["used"].get("GPU", 0) for node in site.status(NAME)["nodes"])


def test_a_search_on_halves_of_gpus_ends_with_its_best_trial(up: Site) -> None:
    search = ("python", "workloads/tune.py", "--gpus-per-worker", "0.5", "--samples", "2")
    done = submit(up, "--", *search, "--epochs", "1", "--concurrent", "1", *SMALL)
    assert done.returncode == 0, done.stdout + done.stderr
