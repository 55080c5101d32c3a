"""Jobs on the shared cluster: `sunspot submit`, `jobs`, `logs` and `stop` for their user."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import requests
from harness import FOREVER, Sunspot
from ray_machines import UNIT, end
from sunspot_command import DEADLINE_S, fresh
from waiting import wait_for

from sunspot.node.free_ports import free_port
from sunspot.node.local import ray_start
from sunspot.node.local.folder import CLUSTER_VARIABLE
from sunspot.ray import packaging
from sunspot.ray.handle import ClusterHandle
from sunspot.targets.local import plan

PRINT_FILES = (
    "import pathlib; print(*sorted(str(p) for p in pathlib.Path().rglob('*') if p.is_file()))"
)

# How the line of Ray's own begins. Ray (2.60) flushes it after it has started the job.
RAYS_LINE = "Running entrypoint for job "


def last_line(log: str) -> str:
    """The last line of the job's own: Ray may write its one, of the entrypoint, after those."""
    return [line for line in log.splitlines() if line and not line.startswith(RAYS_LINE)][-1]


def is_on_the_cluster(cluster: ClusterHandle, directory: Path) -> bool:
    """Whether the directory's package was uploaded."""
    with packaging.package(directory, packaging.collect(directory)) as package:
        url = f"{cluster.job_address}/api/packages/{package.uri.replace('://', '/')}"
    headers = {"Authorization": f"Bearer {cluster.token()}"}
    return requests.get(url, headers=headers, timeout=120).status_code == 200


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A working directory whose content no other test has."""
    path = tmp_path / "work"
    path.mkdir()
    (path / "data.txt").write_text(str(tmp_path))
    return path


def test_an_environment_variable_reaches_the_job(sunspot: Sunspot, cluster: ClusterHandle):
    program = "import os; print(os.environ['GREETING'], os.environ['EMPTY'] == '')"
    printed = sunspot.ok(
        "submit", "--env", "GREETING=a=b c", "--env", "EMPTY=", "--", "python", "-c", program
    )
    assert last_line(printed) == "a=b c True"


def test_the_working_directory_goes_along_without_what_is_ignored(
    sunspot: Sunspot, cluster: ClusterHandle, folder: Path
):
    (folder / ".gitignore").write_text("*.log\n!kept.log\n")
    (folder / ".rayignore").write_text("/data/\n")
    (folder / "data").mkdir()
    (folder / "inner" / "data").mkdir(parents=True)
    for path in ("a.log", "kept.log", "data/large.bin", "inner/data/small.bin", "inner/b.log"):
        (folder / path).write_text("x")
    arguments = ("submit", "--working-dir", str(folder), "--", "python", "-c", PRINT_FILES)

    first = sunspot(*arguments)
    assert first.returncode == 0
    assert last_line(first.stdout).split() == [
        ".gitignore",
        ".rayignore",
        "data.txt",
        "inner/data/small.bin",
        "kept.log",
    ]
    assert "5 files" in first.stderr, "the size of the upload is shown"

    assert "is on the cluster already" in sunspot(*arguments).stderr


def test_the_folder_we_are_in_is_the_default(
    sunspot: Sunspot, cluster: ClusterHandle, folder: Path
):
    printed = sunspot.ok("submit", "--", "python", "-c", PRINT_FILES, cwd=folder)
    assert last_line(printed) == "data.txt"


def test_a_runtime_environment_file_is_used_and_flags_win(
    sunspot: Sunspot, cluster: ClusterHandle, folder: Path, tmp_path: Path
):
    file = tmp_path / "env.yaml"
    file.write_text("env_vars: {FROM_FILE: file, BOTH: file}\n")
    program = "import os; print(os.environ['FROM_FILE'], os.environ['BOTH'])"
    printed = sunspot.ok(
        "submit", "--runtime-env", str(file), "--env", "BOTH=flag", "--", "python", "-c", program,
        cwd=folder,
    )  # fmt: skip
    assert last_line(printed) == "file flag"


def test_a_name_can_be_given_once(sunspot: Sunspot, cluster: ClusterHandle, folder: Path):
    name = fresh("only-once")
    assert sunspot("submit", "--name", name, "--", "true", cwd=folder).returncode == 0
    again = sunspot("submit", "--name", name, "--", "true", cwd=folder)
    assert again.returncode == 2
    assert name in again.stderr
    assert "--name" in again.stderr


def test_stop_ends_a_running_job_and_status_shows_what_it_uses(
    sunspot: Sunspot, cluster: ClusterHandle, folder: Path
):
    name = fresh("stopped")
    sunspot.ok("submit", "--detach", "--num-gpus", "1", "--name", name, "--", *FOREVER, cwd=folder)
    wait_for("the job to begin", lambda: "begun" in sunspot.client("main").logs(name))

    def used_gpus() -> float:
        nodes = json.loads(sunspot.ok("status", "--json"))["nodes"]
        return sum(node["used"].get("GPU", 0) for node in nodes)

    wait_for("the GPU to be in use", lambda: used_gpus() == 1)
    assert "is STOPPED" in sunspot.ok("stop", name)
    assert sunspot("logs", name, "-f").returncode == 130


def test_interrupting_the_log_leaves_the_job_running(
    sunspot: Sunspot, cluster: ClusterHandle, folder: Path
):
    name = fresh("watched")
    sunspot.ok("submit", "--detach", "--name", name, "--", *FOREVER, cwd=folder)
    with sunspot.started("logs", name, "-f") as logs:
        assert logs.stdout is not None
        while logs.stdout.readline().strip() != "begun":
            assert logs.poll() is None
        logs.send_signal(signal.SIGINT)
        _, errors = logs.communicate(timeout=DEADLINE_S)
    assert logs.returncode == 130
    assert "Traceback" not in errors
    assert sunspot.job("main", name).status == "RUNNING"
    sunspot.ok("stop", name)


def test_a_job_that_no_node_can_hold_is_refused_before_the_upload(
    sunspot: Sunspot, cluster: ClusterHandle, folder: Path
):
    before = sunspot.client("main").list()
    done = sunspot("submit", "--num-gpus", "2", "--name", "seed-004", "--", "true", cwd=folder)
    assert done.returncode == 2
    assert "GPU: asked 2" in done.stderr
    assert "largest any has is 1" in done.stderr
    assert "--wait" in done.stderr
    assert sunspot.client("main").list() == before
    assert not is_on_the_cluster(cluster, folder)


def test_the_refusal_names_the_node_type_that_has_most_of_what_is_short(
    sunspot: Sunspot, cluster: ClusterHandle
):
    done = sunspot("submit", "--num-gpus", "2", "--", "true")
    assert "group 'fixed'" in done.stderr, done.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--num-cpus", "4"], ["CPU: asked 4", "3"]),
        (["--memory", "64"], ["memory: asked 64 GiB", "3 GiB"]),
        (["--resources", '{"widget": 1}'], ["widget: asked 1", "0"]),
        (["--num-cpus", "3", "--num-gpus", "1"], ["no node of this cluster can ever hold"]),
    ],
)
def test_every_resource_that_no_node_has_is_refused(
    sunspot: Sunspot, cluster: ClusterHandle, arguments: list[str], words: list[str]
):
    done = sunspot("submit", *arguments, "--", "true")
    assert done.returncode == 2
    for word in words:
        assert word in done.stderr


def test_wait_and_detach_are_refused_together(sunspot: Sunspot):
    done = sunspot("submit", "--wait", "--detach", "--num-gpus", "2", "--", "true")
    assert done.returncode == 2
    assert "--wait" in done.stderr
    assert "--detach" in done.stderr


@pytest.fixture
def larger_node(
    sunspot: Sunspot, cluster: ClusterHandle, tmp_path: Path
) -> Iterator[Callable[[], None]]:
    """Starts, when it is called, a node with two GPUs that no stack file speaks of."""
    ray = str(Path(sys.executable).with_name("ray"))
    sizes = ("--num-cpus=1", "--num-gpus=2", "--memory=2000000000")
    ports = (
        f"--dashboard-agent-listen-port={free_port(set())}",
        "--min-worker-port=0",
        "--max-worker-port=0",
    )
    start_ray = ("start", "--block", f"--address={cluster.head_address}", *sizes, *ports)
    marked = {
        CLUSTER_VARIABLE: str(sunspot.folder("main").path),
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_START_HOOK": plan.START_HOOK,  # on the loopback address, where the cluster is
        ray_start.LOOPBACK_STAYS: "1",  # with a driver's 0, `ray start` refuses to join
    }
    with contextlib.ExitStack() as stack:

        def start() -> None:
            process = subprocess.Popen(
                [*UNIT, ray, *start_ray],
                cwd=tmp_path,
                env=sunspot.environment() | cluster.environment() | marked,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            stack.callback(end, process)

        yield start


def test_such_a_job_runs_with_wait_when_a_node_comes_that_can_hold_it(
    sunspot: Sunspot, cluster: ClusterHandle, folder: Path, larger_node: Callable[[], None]
):
    arguments = ("--wait", "--num-gpus", "2", "--working-dir", str(folder), "--", "echo", "at last")
    with sunspot.started("submit", *arguments) as submit:
        assert submit.stderr is not None
        told = iter(submit.stderr.readline, "")
        assert any("waiting for a node" in line for line in told), "it ended instead of waiting"
        larger_node()
        printed, _ = submit.communicate(timeout=DEADLINE_S)
    assert "at last" in printed
    assert submit.returncode == 0


def test_a_job_that_needs_a_gpu_runs_where_one_is(
    sunspot: Sunspot, cluster: ClusterHandle, folder: Path
):
    program = "import os; print('GPU', os.environ['CUDA_VISIBLE_DEVICES'])"
    name = fresh("on-gpu")
    printed = sunspot.ok(
        "submit", "--num-gpus", "1", "--name", name, "--", "python", "-c", program, cwd=folder
    )
    assert last_line(printed) == "GPU 0"
    answer = requests.get(
        f"{cluster.job_address}/api/jobs/{name}",
        headers={"Authorization": f"Bearer {cluster.token()}"},
        timeout=120,
    ).json()
    nodes = {node["node_id"]: node["node_name"] for node in sunspot.client("main").state("nodes")}
    assert nodes[answer["driver_node_id"]] == "fixed-0"


def test_a_missing_working_directory_is_refused(
    sunspot: Sunspot, cluster: ClusterHandle, tmp_path: Path
):
    done = sunspot("submit", "--working-dir", str(tmp_path / "nowhere"), "--", "true")
    assert done.returncode == 2
    assert str(tmp_path / "nowhere") in done.stderr
    assert "does not exist" in done.stderr


def test_too_large_a_working_directory_lists_its_five_largest_paths(
    sunspot: Sunspot, cluster: ClusterHandle, folder: Path
):
    before = sunspot.client("main").list()
    for size in range(30, 24, -1):
        with (folder / f"{size}.bin").open("wb") as file:
            file.truncate(size * 2**20)  # sparse: takes no room
    done = sunspot("submit", "--working-dir", str(folder), "--", "true")
    assert done.returncode == 2
    listed = [line.split()[-1] for line in done.stderr.splitlines() if line.endswith(".bin")]
    assert listed == ["30.bin", "29.bin", "28.bin", "27.bin", "26.bin"]
    assert ".rayignore" in done.stderr
    assert ".gitignore" in done.stderr
    assert sunspot.client("main").list() == before

    (folder / ".rayignore").write_text("*.bin\n")
    assert sunspot("submit", "--working-dir", str(folder), "--", "true").returncode == 0


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["--env", "NOVALUE"], "NAME=VALUE"),
        (["--resources", "[1]"], "JSON object"),
        (["--num-cpus", "-1"], "0 or more"),
        (["--runtime-env", "missing.yaml"], "missing.yaml"),
        (["--num-cpus", "many"], "'--num-cpus'"),
    ],
)
def test_a_wrong_option_is_named(
    sunspot: Sunspot, cluster: ClusterHandle, arguments: list[str], word: str
):
    done = sunspot("submit", *arguments, "--", "true")
    assert done.returncode == 2
    assert word in done.stderr


def test_plain_ray_runs_the_same_job_with_what_up_printed(
    sunspot: Sunspot, cluster: ClusterHandle, up_output: str, folder: Path
):
    lines = (shlex.split(line) for line in up_output.splitlines() if "export " in line)
    variables = dict(words[-1].split("=", 1) for words in lines)
    assert {"RAY_API_SERVER_ADDRESS", "RAY_AUTH_MODE", "RAY_AUTH_TOKEN_PATH"} <= variables.keys()
    done = subprocess.run(
        [
            Path(sys.executable).with_name("ray"),
            *("job", "submit", "--working-dir", folder, "--", "python", "-c", PRINT_FILES),
        ],
        cwd=folder,
        env=sunspot.environment() | variables | {"RAY_USAGE_STATS_ENABLED": "0"},
        capture_output=True,
        text=True,
        check=False,
        timeout=DEADLINE_S,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{os.linesep}data.txt{os.linesep}" in done.stdout
