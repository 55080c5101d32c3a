"""The batch script: its options, its quoting, and the nodes' code in it."""

from __future__ import annotations

import ast
import base64
import io
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from sunspot.stack import Stack
from sunspot.targets.slurm import plan, script
from sunspot.targets.slurm.script import NODE_MODULES, NODE_SOURCES, Submission

SMALL = {"cpu": 1, "memory_gb": 2}
WORKERS = {"name": "workers", "min_workers": 2, "max_workers": 2, "worker_nodes": SMALL}


def stack(*groups, head=SMALL, **slurm):
    cluster = {"head_node": head, "scaling_groups": list(groups)}
    return Stack.parse({"sunspot:cluster": cluster, "sunspot:slurm": slurm}, name="dev")


def options(text):
    return [line.removeprefix("#SBATCH ") for line in text.splitlines() if "#SBATCH" in line]


def test_alike_nodes_are_one_component():
    text = script.manifest(stack(WORKERS, time="1:00:00", partition="p", account="a", qos="q"))
    assert options(text) == [
        "--job-name=sunspot-dev",
        "--output=sunspot-dev-%j.out",
        "--open-mode=append",
        "--no-requeue",
        "--no-kill",
        "--signal=B:USR1@120",
        "--time=1:00:00",
        "--nodes=3",
        "--partition=p",
        "--account=a",
        "--qos=q",
        "--ntasks-per-node=1",
        "--cpus-per-task=1",
        "--mem=2048M",
    ]
    assert "head) exec srun --relative=0 --nodes=1 --ntasks=1 " in text
    assert "workers) exec srun --relative=1 --nodes=2 --ntasks=2 " in text


def test_nodes_that_differ_are_components_of_a_heterogeneous_job():
    gpus = WORKERS | {"worker_nodes": SMALL | {"gpu_count": 2}}
    text = script.manifest(
        stack(gpus, groups={"workers": {"gres": "gpu:t4", "partition": "g"}}, requeue=True)
    )
    head, workers = "\n".join(options(text)).split("\nhetjob\n")
    assert "--requeue" in head.splitlines()
    assert "--job-name" not in workers
    assert {"--nodes=2", "--partition=g", "--gres=gpu:t4:2"} <= set(workers.splitlines())
    assert "workers) exec srun --het-group=1 --nodes=2 " in text


def test_a_group_that_starts_with_no_worker_has_no_task():
    elastic = WORKERS | {"min_workers": 0}
    cluster = {
        "head_node": SMALL,
        "scaling_groups": [elastic],
        "autoscaler_config": {"cpu": 0.5, "memory_gb": 1},
    }
    text = script.manifest(Stack.parse({"sunspot:cluster": cluster}, name="dev"))
    assert "--nodes=1" in options(text)
    assert "groups=(head)" in text


def test_a_head_that_runs_no_tasks_still_asks_for_a_cpu():
    (head,) = plan.requests(stack(head=SMALL | {"cpu": 0}))
    assert head.cpus == 1
    assert plan.nodes_plan(stack(head=SMALL | {"cpu": 0})).groups[0].cpus == 0


def test_an_apptainer_image_runs_the_nodes_with_the_folders_that_they_need():
    text = script.manifest(
        stack(
            scratch="/local",
            container={
                "kind": "apptainer",
                "image": "/my images/ray.sif",
                "binds": ["/data:/data"],
                "flags": ["--nv"],
            },
        )
    )
    assert (
        'sunspot "$folder" apptainer exec --bind "$folder:$folder" --bind "$storage:$storage" '
        "--bind /local:/local --bind /data:/data --nv "
        "'/my images/ray.sif' python3 \"$folder/node.zip\"" in text
    )


def test_an_enroot_image_is_given_to_srun():
    text = script.manifest(stack(container={"kind": "enroot", "image": "rayproject/ray:2.60.0"}))
    assert (
        "--no-kill --container-image=rayproject/ray:2.60.0 "
        '--container-mounts="$folder:$folder","$storage:$storage" bash -c' in text
    )


def test_steps_have_the_scripts_environment_where_the_site_exports_none():
    text = script.manifest(stack(WORKERS, extra=["--export=NONE"]))
    steps = [line for line in text.splitlines() if " exec srun " in line]
    assert len(steps) == 2
    assert all(" --export=ALL " in step for step in steps)


def test_a_folder_of_a_variable_that_is_not_set_is_not_one_of_the_root():
    text = script.manifest(stack(folder="$WORK/clusters"))
    done = subprocess.run(
        ["/bin/bash", "-c", text], env={}, capture_output=True, text=True, check=False
    )
    assert done.returncode != 0
    assert "WORK" in done.stderr


def test_a_command_is_quoted():
    submission = Submission(
        name="n", folder="/f", output="/f/out", command=("echo", "it's @plan@; rm x")
    )
    text = script.batch(stack(WORKERS), submission)
    assert """set -- echo 'it'"'"'s @plan@; rm x'""" in text


def test_the_same_stack_gives_the_same_script():
    assert script.manifest(stack(WORKERS)) == script.manifest(stack(WORKERS))


def scripts():
    wanted = stack(WORKERS, setup=["module load python"])
    request = plan.request(wanted, "workers", wanted.cluster.scaling_groups[0].worker_nodes, 1)
    submission = Submission(name="n", folder="$HOME/f", output="o", command=())
    return {
        "manifest": script.manifest(wanted),
        "up": script.batch(wanted, submission),
        "join": script.joining(wanted, request, submission, address="10.0.0.1:20000", count=3),
    }


@pytest.mark.parametrize("name", ["manifest", "up", "join"])
def test_shellcheck_finds_nothing(name):
    text = scripts()[name]
    assert not re.search("@[a-z]+@", text)
    checker = shutil.which("shellcheck", path=Path(sys.executable).parent)
    assert checker
    done = subprocess.run([checker, "-"], input=text, capture_output=True, text=True, check=False)
    assert done.stdout == ""


def test_workers_that_join_are_an_array_and_do_not_start_again():
    found = options(scripts()["join"])
    assert "--array=1-3" in found
    assert "--nodes=1" in found
    assert "--no-requeue" in found


# The nodes' code


@pytest.fixture
def code(tmp_path):
    """The nodes' code as it lies on a node."""
    path = tmp_path / "node.zip"
    path.write_bytes(base64.b64decode(script.node_code()))
    return path


def test_the_code_runs_where_sunspot_is_not_installed(code, tmp_path):
    # -S: no .pth file, which would put this repository on the path.
    done = subprocess.run(
        [sys.executable, "-S", str(code), "check", str(tmp_path), "head"],
        env={},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "plan.json" in done.stderr  # it came so far


def test_the_code_is_complete(code):
    archive = zipfile.ZipFile(io.BytesIO(code.read_bytes()))
    assert set(archive.namelist()) == {
        "__main__.py",
        "sunspot/__init__.py",
        *(f"sunspot/node/{name}" for name in NODE_MODULES),
    }
    names = (name.removesuffix(".py").replace("/", ".") for name in NODE_MODULES)
    shipped = {f"sunspot.node.{name}" for name in names}
    for name in NODE_MODULES:
        for node in ast.walk(ast.parse((NODE_SOURCES / name).read_text())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("sunspot."):
                ours = {f"{node.module}.{alias.name}" for alias in node.names}
                assert node.module in shipped or ours <= shipped, f"{name}: {node.module}"


@pytest.mark.parametrize("name", NODE_MODULES)
def test_the_code_is_python_of_rays_oldest_image(name):
    ast.parse((NODE_SOURCES / name).read_text(), feature_version=(3, 10))
