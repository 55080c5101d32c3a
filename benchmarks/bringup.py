"""How long until a task has run on each node of a new cluster: head and two workers.

Compares `sunspot up` with `ray.cluster_utils.Cluster`, and with `ray start` called for one node
after the other. All use token authentication; each connects with a driver of its own.

    python benchmarks/bringup.py
"""

from __future__ import annotations

import contextlib
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

from _cluster import (
    BIN,
    CPUS_A_NODE,
    bring_up_seconds,
    run_task_on_each_node,
    token_environment,
)
from _pairs import compare

WORKERS = 2
PAIRS = 5

CLUSTER_UTILS = f"""
from ray.cluster_utils import Cluster
cluster = Cluster(initialize_head=True, head_node_args={{"num_cpus": {CPUS_A_NODE}}})
for _ in range({WORKERS}):
    cluster.add_node(num_cpus={CPUS_A_NODE})
print(cluster.address, flush=True)
input()
cluster.shutdown()
"""


def cluster_utils() -> float:
    """Return the seconds with ray.cluster_utils.Cluster, from the start of its process."""
    with tempfile.TemporaryDirectory(prefix="sunspot-bench-") as name:
        environment = token_environment(Path(name))
        started = time.monotonic()
        with subprocess.Popen(
            [sys.executable, "-c", CLUSTER_UTILS],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        ) as process:
            assert process.stdout
            address = process.stdout.readline().strip()
            run_task_on_each_node(environment, address, WORKERS + 1)
            seconds = time.monotonic() - started
            process.communicate("\n")
        return seconds


def ray_start() -> float:
    """Return the seconds with `ray start` for one node after the other, each waited for."""
    with (
        tempfile.TemporaryDirectory(prefix="sunspot-bench-") as name,
        contextlib.ExitStack() as stop,
    ):
        folder = Path(name)
        environment = token_environment(folder)
        port, dashboard, *agents = _free_ports(WORKERS + 3)
        common = ["start", f"--num-cpus={CPUS_A_NODE}", "--disable-usage-stats", "--block"]
        head = ["--head", f"--port={port}", f"--dashboard-port={dashboard}"]
        address = f"{_host()}:{port}"
        started = time.monotonic()
        for number, agent in enumerate(agents):
            role = [f"--address={address}"] if number else head
            ports = [f"--dashboard-agent-listen-port={agent}", f"--temp-dir={folder / str(number)}"]
            ranges = ["--min-worker-port=0", "--max-worker-port=0"]
            log = stop.enter_context((folder / f"{number}.log").open("w+"))
            command = [str(BIN / "ray"), *common, *role, *ports, *ranges]
            process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
            stop.callback(_end, process)
            _wait_for_text(folder / f"{number}.log", "Ray runtime started", process)
        run_task_on_each_node(environment, address, WORKERS + 1)
        return time.monotonic() - started


def _wait_for_text(log: Path, text: str, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 60
    while text not in log.read_text():
        if process.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError(log.read_text())
        time.sleep(0.02)


def _end(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGTERM)
    process.wait(timeout=60)


def _free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as open_sockets:
        sockets = [open_sockets.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("", 0))
        return [one.getsockname()[1] for one in sockets]


def _host() -> str:
    """Return this machine's address as Ray sees it, asked in a process of its own."""
    code = "import ray; print(ray.util.get_node_ip_address())"
    return subprocess.check_output([sys.executable, "-c", code], text=True).strip()


def main() -> None:
    """Print the comparisons; the last line is JSON."""
    sequential = round(median(ray_start() for _ in range(3)), 4)
    compare(
        "bringup",
        lambda: bring_up_seconds(WORKERS),
        cluster_utils,
        PAIRS,
        peer_name="ray.cluster_utils.Cluster",
        aim=0.6,
        extra={"ray_start": sequential},
    )


if __name__ == "__main__":
    main()
