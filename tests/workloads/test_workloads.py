"""Each workload runs as a user runs it, on one real cluster of two nodes."""

import json
import math
import os
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from ray_machines import UNIT, end
from waiting import wait_for

from sunspot.node.free_ports import free_port

ROOT = Path(__file__).resolve().parents[2]
WORKLOADS = ROOT / "workloads"
# A cluster of its own, and a core each for what is timed.
pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]

NAMES = ["primes", "pi", "object_store", "where"]
COMMON_KEYS = {
    "workload",
    "tasks",
    "nodes",
    "workers",
    "seconds",
    "one_worker_seconds",
    "summary",
    "by_node",
}
SEED_FIRST, SEED_LAST = 9_000_000, 9_010_000


# A cluster for the session


def _free_ports(count: int) -> list[int]:
    found: list[int] = []
    for _ in range(count):
        found.append(free_port(found))
    return found


@contextmanager
def _node(env: dict[str, str], folder: Path, name: str, *arguments: str) -> Iterator[None]:
    """Run a Ray node as a child, and stop that child alone."""
    ray = Path(sys.executable).with_name("ray")
    command = [*UNIT, str(ray), "start", "--block", "--num-cpus=1"]
    command += ["--object-store-memory=200000000", *arguments]
    env = env | {
        # A busy machine may need more than the 30 s that Ray waits for its raylet.
        "RAY_START_HOOK": "sunspot.node.raylet.start_hook",
        "RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S": "0",
    }
    with (folder / f"{name}.log").open("wb") as log:
        child = subprocess.Popen(command, env=env, stdout=log, stderr=log, start_new_session=True)
        try:
            yield
        finally:
            end(child)


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@pytest.fixture(scope="session")
def cluster() -> Iterator[dict[str, str]]:
    """Return the environment of a program that runs on a cluster of two labelled nodes."""
    # A short path: Ray's sockets lie under it, and a socket's path has a limit of 107 bytes.
    folder = Path(tempfile.mkdtemp(prefix="wl-"))
    token = folder / "token"
    token.write_text(secrets.token_hex(32))
    token.chmod(0o600)
    port, client, *agents = _free_ports(4)
    env = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    env |= {
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN_PATH": str(token),
        "RAY_USAGE_STATS_ENABLED": "0",
    }
    head = [f"--port={port}", f"--temp-dir={folder}/ray", "--include-dashboard=false", "--head"]
    head.append(f"--ray-client-server-port={client}")  # 10001 may be taken
    head.append(f"--dashboard-agent-listen-port={agents[0]}")
    labels = "--labels=ray.io/node-group={},ray.io/market-type={}"
    try:
        with ExitStack() as nodes:
            nodes.enter_context(_node(env, folder, "h", *head, labels.format("head", "on-demand")))
            wait_for("the GCS", lambda: _listens(port), seen=(folder / "h.log").read_text)
            join = [f"--address=127.0.0.1:{port}", labels.format("cpu", "spot")]
            join.append(f"--dashboard-agent-listen-port={agents[1]}")
            nodes.enter_context(_node(env, folder, "w", *join))
            env["RAY_ADDRESS"] = f"127.0.0.1:{port}"
            _wait_for_nodes(env, 2)
            yield env
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _wait_for_nodes(env: dict[str, str], count: int) -> None:
    wait = (
        "import ray, sys, time\n"
        "deadline = time.monotonic() + 300\n"
        "while True:\n"
        "    try:\n"
        "        ray.init(log_to_driver=False, logging_level='ERROR')\n"
        "        break\n"
        "    except Exception:\n"
        "        if time.monotonic() > deadline: raise\n"
        "        time.sleep(0.2)\n"
        f"while sum(node['Alive'] for node in ray.nodes()) < {count}:\n"
        "    if time.monotonic() > deadline: sys.exit('a node did not join')\n"
        "    time.sleep(0.1)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", wait], env=env, capture_output=True, text=True, timeout=330
    )
    assert done.returncode == 0, done.stdout + done.stderr


def _run(env: dict[str, str], out: Path, name: str, *arguments: str) -> tuple[dict, str]:
    """Return what the workload wrote and what it printed."""
    command = [sys.executable, f"workloads/{name}.py", *arguments, "--out", str(out)]
    done = subprocess.run(
        command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(out.read_text())
    assert found.keys() >= COMMON_KEYS
    assert found["workload"] == name
    assert found["summary"] in done.stdout
    assert found["seconds"] > 0
    assert sum(node["tasks"] for node in found["by_node"].values()) == found["tasks"]
    assert len(found["by_node"]) == found["nodes"] <= found["workers"] <= found["tasks"]
    return found, done.stdout


def _run_together(*runs: tuple) -> list[dict]:
    """Return what several workloads wrote that shared the cluster; it also saves time."""
    with ThreadPoolExecutor() as pool:
        return [found for found, _ in pool.map(lambda run: _run(*run), runs)]


def _sieve(first: int, last: int) -> list[int]:
    """Return the primes of the range by crossing out multiples, which divides nothing."""
    alive = bytearray([1]) * (last + 1)
    alive[:2] = b"\0\0"
    for number in range(2, math.isqrt(last) + 1):
        if alive[number]:
            alive[number * number :: number] = bytes(len(range(number * number, last + 1, number)))
    return [number for number in range(first, last + 1) if alive[number]]


# Primes


def test_primes_of_the_default_range_are_the_true_ones(cluster, tmp_path):
    found, printed = _run(cluster, tmp_path / "out.json", "primes", "--baseline")
    true = _sieve(SEED_FIRST, SEED_LAST)
    assert (found["count"], found["first"], found["last"]) == (len(true), true[0], true[-1])
    assert found["sum"] == sum(true)
    assert found["tasks"] == 8  # four for each of the two CPUs
    assert found["nodes"] == 2
    assert found["one_worker_seconds"] > 0
    assert f"{len(true)} primes" in printed
    assert {(node["group"], node["market"]) for node in found["by_node"].values()} == {
        ("head", "on-demand"),
        ("cpu", "spot"),
    }


def test_naive_primes_are_those_of_batches(cluster, tmp_path):
    batched, naive = _run_together(
        (cluster, tmp_path / "batched.json", "primes", "9000", "9400", "--batches", "3"),
        (cluster, tmp_path / "naive.json", "primes", "9000", "9400", "--naive"),
    )
    assert (batched["tasks"], naive["tasks"]) == (3, 401)
    for key in ("count", "first", "last", "sum"):
        assert naive[key] == batched[key]
    assert naive["sum"] == sum(_sieve(9000, 9400))


def test_a_range_without_primes_and_fewer_numbers_than_batches(cluster, tmp_path):
    arguments = ["24", "28", "--batches", "50", "--all-divisors"]
    found, printed = _run(cluster, tmp_path / "out.json", "primes", *arguments)
    assert (found["count"], found["first"], found["last"]) == (0, None, None)
    assert found["tasks"] == 5
    assert "0 primes" in printed


# Pi


def test_pi_is_near_and_the_same_for_the_same_seed(cluster, tmp_path):
    size = ["--samples", "1100000", "--seed", "7"]
    one, many = _run_together(
        (cluster, tmp_path / "one.json", "pi", *size, "--tasks", "1"),
        (cluster, tmp_path / "many.json", "pi", *size, "--tasks", "5", "--baseline"),
    )
    assert one["estimate"] == many["estimate"]
    assert one["estimate"] == pytest.approx(math.pi, abs=0.01)  # six standard errors
    assert many["error"] == pytest.approx(many["estimate"] - math.pi)
    assert (one["samples"], one["tasks"], many["tasks"]) == (1_100_000, 1, 5)
    assert one["one_worker_seconds"] is None
    assert many["one_worker_seconds"] > 0


# Object store


@pytest.mark.skipif(
    not Path("/proc/self/smaps_rollup").exists(), reason="this kernel tells no share of memory"
)
def test_workers_share_an_array_that_processes_copy(cluster, tmp_path):
    numpy = pytest.importorskip("numpy")
    arguments = ["--megabytes", "64", "--workers", "3", "--seed", "5"]
    found, printed = _run(cluster, tmp_path / "out.json", "object_store", *arguments)
    array = numpy.random.default_rng(5).normal(3.0, 2.0, 8_000_000)
    assert found["mean"] == pytest.approx(array.mean(), abs=1e-9)
    assert found["std"] == pytest.approx(array.std(), abs=1e-9)
    ours, theirs = found["memory"]["ray"], found["memory"]["multiprocessing"]
    for side in (ours, theirs):
        assert len({(worker["node"], worker["pid"]) for worker in side["workers"]}) == 3
        assert side["array_mb"] == 64
        assert f"{side['total_pss_mb']:,.0f} MB" in printed
    # The array is in each process's own pages on one side, and in nobody's on the other.
    smallest_copy = min(worker["private_mb"] for worker in theirs["workers"])
    assert smallest_copy > 64
    assert all(worker["shared_mb"] > 64 for worker in ours["workers"])
    assert max(worker["private_mb"] for worker in ours["workers"]) < smallest_copy - 32
    assert ours["total_pss_mb"] < theirs["total_pss_mb"]


# Where


def test_where_lists_both_nodes(cluster, tmp_path):
    found, printed = _run(cluster, tmp_path / "out.json", "where", "--tasks", "12")
    assert (found["tasks"], found["nodes"]) == (12, 2)
    lines = [line.split() for line in printed.splitlines()]
    assert ["node", "group", "market", "address", "workers", "tasks"] in lines
    for node_id, node in found["by_node"].items():
        line = next(line for line in lines if line and line[0] == node_id[:8])
        assert line[1:3] == [node["group"], node["market"]]
        assert int(line[-1]) == node["tasks"]


# What needs no cluster


@pytest.mark.parametrize("name", NAMES)
def test_help_shows_an_example(name):
    command = [sys.executable, f"workloads/{name}.py", "--help"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0
    assert f"python workloads/{name}.py" in done.stdout


@pytest.mark.parametrize(
    ("name", "arguments", "told"),
    [
        ("primes", ["20", "10"], "below the first"),
        ("primes", ["ten"], "not a whole number"),
        ("primes", ["-5", "10"], "less than 0"),
        ("primes", ["--batches", "0"], "less than 1"),
        ("primes", ["--naive", "--batches", "3"], "leave out --batches"),
        ("pi", ["--samples", "0"], "less than 1"),
        ("pi", ["--samples", "1e6"], "not a whole number"),
        ("object_store", ["--megabytes", "0"], "less than 1"),
        ("object_store", ["--workers", "none"], "not a whole number"),
        ("where", ["--tasks", "-1"], "less than 1"),
        ("where", ["--out", "no/such/folder/x.json"], "folder that exists"),
        ("where", ["--unknown"], "unrecognized arguments"),
    ],
)
def test_bad_arguments_are_refused_before_ray_is_asked(name, arguments, told):
    command = [sys.executable, f"workloads/{name}.py", *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert told in done.stderr
    assert done.stdout == ""


def _evaluate(expression: str, *modules: str) -> Any:
    """Return an expression over the workloads' own functions.

    In a process of its own: their names are too common to be imported here, and so are Ray's
    settings, which are read once when it is imported.
    """
    code = f"import json, sys, {', '.join(modules)}; json.dump({expression}, sys.stdout)"
    env = os.environ | {"PYTHONPATH": str(WORKLOADS)}
    done = subprocess.run(
        [sys.executable, "-c", code], env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_without_numpy_the_object_store_says_what_to_install(tmp_path):
    (tmp_path / "numpy.py").write_text("raise ImportError\n")
    command = [sys.executable, str(WORKLOADS / "object_store.py")]
    env = os.environ | {"PYTHONPATH": str(tmp_path)}
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "pip install numpy" in done.stderr


def test_trial_division_agrees_with_a_sieve():
    true = _sieve(0, 2000)
    by = "[primes.primes_in(0, 2000, every) for every in (False, True)]"
    assert _evaluate(by, "primes") == [true, true]


def test_batches_cover_the_range_once():
    parts = [1, 2, 7, 10, 11, 99]
    for wanted, batches in zip(
        parts, _evaluate(f"[primes.split(5, 14, n) for n in {parts}]", "primes"), strict=True
    ):
        covered = [number for first, last, _ in batches for number in range(first, last + 1)]
        assert covered == list(range(5, 15))
        assert len(batches) == min(wanted, 10)


def test_pieces_add_up_to_the_samples():
    work, dealt = _evaluate("[work := pi.pieces(3, 2 * pi.PIECE + 1), pi.deal(work, 2)]", "pi")
    assert [points for _, _, points in work] == [work[0][2], work[0][2], 1]
    assert [piece for part in dealt for piece in part] == work


def test_a_task_of_pi_waits_for_no_report():
    """Ray gives the CPU of a waiting task to another one, and starts a worker process for it."""
    code = """[
        tally := type("Tally", (), {"report": type("Report", (), {"remote": lambda *_: None})}),
        setattr(pi, "here", lambda: ("node", 1)),
        pi._sample._function(tally, 0, [(7, 0, 1000), (7, 1, 500)]),
        pi.hits(7, 0, 1000) + pi.hits(7, 1, 500),
    ][2:]"""
    (place, inside), expected = _evaluate(code, "pi")
    assert (place, inside) == (["node", 1], expected)


def test_a_task_carries_the_code_that_it_needs(tmp_path):
    """A worker on another machine cannot import the workload or its sibling."""
    code = (
        "import _common; from ray import cloudpickle;"
        f"open(r'{tmp_path}/task', 'wb').write(cloudpickle.dumps(_common.here))"
    )
    env = os.environ | {"PYTHONPATH": str(WORKLOADS)}
    subprocess.run([sys.executable, "-c", code], env=env, check=True)
    load = "import pickle, sys; print(pickle.load(sys.stdin.buffer).__name__)"
    with (tmp_path / "task").open("rb") as task:
        done = subprocess.run(
            [sys.executable, "-c", load], stdin=task, cwd=tmp_path, capture_output=True, check=False
        )
    assert done.stdout.strip() == b"here", done.stderr.decode()
