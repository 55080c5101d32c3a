"""Clusters for the benchmarks: a throw-away project, its state, and a task on each node."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

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
    """A folder with a stack of `workers` fixed workers, and a state directory of its own."""

    folder: Path
    environment: Mapping[str, str]

    def sunspot(self, *arguments: str) -> str:
        """Run the `sunspot` command and return what it prints.

        Raises:
            RuntimeError: If it fails, with its messages.
        """
        done = subprocess.run(
            [str(BIN / "sunspot"), *arguments],
            cwd=self.folder,
            env=dict(self.environment),
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise RuntimeError(f"sunspot {' '.join(arguments)}: {done.stderr}")
        return done.stdout


@contextlib.contextmanager
def project(workers: int) -> Iterator[Project]:
    """Yield a project; its cluster is taken down at the end of the block."""
    node = {"cpu": CPUS_A_NODE, "memory_gb": 2}
    group = {"worker_nodes": node, "min_workers": workers, "max_workers": workers}
    with tempfile.TemporaryDirectory(prefix="sunspot-bench-") as name:
        folder = Path(name)
        config = {
            "sunspot:target": "local",
            "sunspot:cluster": {"head_node": node, "scaling_groups": [group]},
        }
        (folder / "Pulumi.yaml").write_text("name: bench\nruntime: python\n")
        (folder / f"Pulumi.{STACK}.yaml").write_text(yaml.safe_dump({"config": config}))
        environment = os.environ | {"SUNSPOT_STATE_DIR": str(folder / "state")}
        made = Project(folder, environment)
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


def run_task_on_each_node(environment: Mapping[str, str], address: str, nodes: int) -> None:
    """Run one task on each of the cluster's nodes, in a driver process of its own."""
    subprocess.run(
        [sys.executable, "-c", TASK_ON_EACH_NODE],
        env={**environment, "RAY_ADDRESS": address, "NODES": str(nodes)},
        check=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def bring_up_seconds(workers: int) -> float:
    """Return the seconds from `sunspot up` until a task has run on the head and each worker."""
    with project(workers) as made:
        started = time.monotonic()
        printed = made.sunspot("up", STACK)
        exports = dict(re.findall(r"export (\w+)=(\S+)", printed))
        run_task_on_each_node({**made.environment, **exports}, exports["RAY_ADDRESS"], workers + 1)
        return time.monotonic() - started
