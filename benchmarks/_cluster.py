"""Clusters for the benchmarks: a throw-away project, its state, and a task on each node."""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil
import yaml

BIN = Path(sys.executable).parent
CPUS_A_NODE = 2
STACK = "bench"

# Connects and runs one task on each node; the start of this driver is part of the measurement.
TASK_ON_EACH_NODE = """
import json, os, ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy as On
ray.init(address=os.environ["RAY_ADDRESS"], log_to_driver=False, logging_level="ERROR")
task = ray.remote(num_cpus=1)(lambda: ray.get_runtime_context().get_node_id())
nodes = [node["NodeID"] for node in ray.nodes() if node["Alive"]]
ran = ray.get([task.options(scheduling_strategy=On(node, soft=False)).remote() for node in nodes])
assert sorted(ran) == sorted(nodes) and len(nodes) == int(os.environ["NODES"]), (ran, nodes)
"""


@dataclass(frozen=True)
class Project:
    """A folder with a stack of `workers` fixed workers, and a state directory of its own.

    `programs` is the folder of the `sunspot` command that it uses.
    """

    folder: Path
    environment: Mapping[str, str]
    programs: Path

    def sunspot(self, *arguments: str) -> str:
        """Run the `sunspot` command and return what it prints.

        Raises:
            RuntimeError: If it fails, with its messages.
        """
        done = subprocess.run(
            [str(self.programs / "sunspot"), *arguments],
            cwd=self.folder,
            env=dict(self.environment),
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise RuntimeError(f"sunspot {' '.join(arguments)}: {done.stderr}")
        return done.stdout

    def up(self) -> tuple[Mapping[str, str], str]:
        """Bring the cluster up and return its drivers' environment, and its address."""
        printed = self.sunspot("up", STACK)
        lines = (shlex.split(line) for line in printed.splitlines() if "export " in line)
        exports = dict(words[-1].split("=", 1) for words in lines)
        return {**self.environment, **exports}, exports["RAY_ADDRESS"]


@contextlib.contextmanager
def project(
    workers: int, programs: Path = BIN, *, minimum: int | None = None, head_cpus: int = CPUS_A_NODE
) -> Iterator[Project]:
    """Yield a project; its cluster is taken down at the end of the block.

    Args:
        workers: The number of workers.
        programs: The folder of the environment's programs.
        minimum: Of these, how many there are without a demand; by default, all.
        head_cpus: The head's CPUs.
    """
    node = {"cpu": CPUS_A_NODE, "memory_gb": 2}
    least = workers if minimum is None else minimum
    group = {"worker_nodes": node, "min_workers": least, "max_workers": workers}
    groups = [group] if workers else []
    with tempfile.TemporaryDirectory(prefix="sunspot-bench-") as name:
        folder = Path(name)
        cluster: dict[str, object] = {
            "head_node": {**node, "cpu": head_cpus},
            "scaling_groups": groups,
        }
        if least < workers:
            cluster["autoscaler_config"] = {"cpu": 0.5, "memory_gb": 1}
        config = {"sunspot:target": "local", "sunspot:cluster": cluster}
        (folder / "Pulumi.yaml").write_text("name: bench\nruntime: python\n")
        (folder / f"Pulumi.{STACK}.yaml").write_text(yaml.safe_dump({"config": config}))
        environment = os.environ | {"SUNSPOT_STATE_DIR": str(folder / "state")}
        made = Project(folder, environment, programs)
        try:
            yield made
        finally:
            made.sunspot("down")


def token_environment(folder: Path) -> dict[str, str]:
    """Return an environment with a fresh token for a peer, so that both sides authenticate."""
    token = folder / "token"
    token.write_text(os.urandom(32).hex())
    token.chmod(0o600)
    return os.environ | {
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN_PATH": str(token),
        "RAY_USAGE_STATS_ENABLED": "0",
    }


def run_task_on_each_node(
    environment: Mapping[str, str], address: str, nodes: int, programs: Path = BIN
) -> None:
    """Run one task on each of the cluster's nodes, in a driver process of its own."""
    subprocess.run(
        [str(programs / "python"), "-c", TASK_ON_EACH_NODE],
        env={**environment, "RAY_ADDRESS": address, "NODES": str(nodes)},
        check=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def bring_up_seconds(workers: int, programs: Path = BIN, driver: Path | None = None) -> float:
    """Return the seconds from `sunspot up` until a task has run on the head and each worker.

    Args:
        workers: The number of workers.
        programs: The folder of the environment's programs.
        driver: The same of the environment in which the task's driver runs; by default, `programs`.
    """
    with project(workers, programs) as made:
        started = time.monotonic()
        environment, address = made.up()
        run_task_on_each_node(environment, address, workers + 1, driver or programs)
        return time.monotonic() - started


@dataclass(frozen=True)
class PlainRay:
    """Nodes that plain `ray start` started, one process tree each, and their GCS's address."""

    environment: Mapping[str, str]
    address: str
    nodes: Sequence[subprocess.Popen[bytes]]

    def processes(self) -> list[psutil.Process]:
        """Return every process of the nodes."""
        trees = [psutil.Process(node.pid) for node in self.nodes]
        return [one for tree in trees for one in (tree, *tree.children(recursive=True))]


@contextlib.contextmanager
def plain_ray(workers: int, host: str) -> Iterator[PlainRay]:
    """Yield a head and workers on this machine's address, each started after the one before it."""
    with (
        tempfile.TemporaryDirectory(prefix="sunspot-bench-") as name,
        contextlib.ExitStack() as stop,
    ):
        folder = Path(name)
        environment = token_environment(folder)
        port, dashboard, client, *agents = free_ports(workers + 4)
        common = ["start", f"--num-cpus={CPUS_A_NODE}", "--disable-usage-stats", "--block"]
        head = ["--head", f"--port={port}", f"--dashboard-port={dashboard}"]
        head.append(f"--ray-client-server-port={client}")  # 10001 may be taken, which ends the head
        address = f"{host}:{port}"
        nodes = []
        for number, agent in enumerate(agents):
            role = [f"--address={address}"] if number else head
            ports = [f"--dashboard-agent-listen-port={agent}", f"--temp-dir={folder / str(number)}"]
            ranges = ["--min-worker-port=0", "--max-worker-port=0"]
            log = stop.enter_context((folder / f"{number}.log").open("w+"))
            command = [str(BIN / "ray"), *common, *role, *ports, *ranges]
            process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
            stop.callback(_end, process)
            _wait_for_text(folder / f"{number}.log", "Ray runtime started", process)
            nodes.append(process)
        yield PlainRay(environment, address, nodes)


def ray_host() -> str:
    """Return this machine's address as Ray sees it, asked in a process of its own."""
    code = "import ray; print(ray.util.get_node_ip_address())"
    return subprocess.check_output([sys.executable, "-c", code], text=True).strip()


def _wait_for_text(log: Path, text: str, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 60
    while text not in log.read_text():
        if process.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError(log.read_text())
        time.sleep(0.02)


def _end(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGTERM)
    process.wait(timeout=60)


def free_ports(count: int) -> list[int]:
    """Return so many ports that nothing has at the moment."""
    with contextlib.ExitStack() as open_sockets:
        sockets = [open_sockets.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("", 0))
        return [one.getsockname()[1] for one in sockets]
