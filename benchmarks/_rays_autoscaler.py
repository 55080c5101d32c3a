"""A head with Ray's own autoscaler at its defaults, for benchmarks: the peer of an elastic group.

Its nodes come from the provider of processes on one machine that Ray's own tests use
(`fake_multinode`).
"""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import psutil
from _cluster import BIN, CPUS_A_NODE, STACK, free_ports, ray_host, token_environment

GROUP = "workers"
# Ray's default (ray/autoscaler/ray-schema.json, 2.60).
RAYS_IDLE_MINUTES = 5
RAYS_PROVIDER = "ray.autoscaler._private.fake_multi_node.node_provider.FakeMultiNodeProvider"
# The id that Ray's provider gives the head, which it counts as one of its nodes.
HEAD_ID = "f" * 51 + "00000"


@contextlib.contextmanager
def ray_head(
    maximum: int, *, idle_minutes: float = RAYS_IDLE_MINUTES
) -> Iterator[tuple[Mapping[str, str], str]]:
    """Yield the environment and address of a head with Ray's autoscaler; no process outlives it.

    Args:
        maximum: The most workers, of which there are none without a demand.
        idle_minutes: After how long without work a worker is terminated.
    """
    with tempfile.TemporaryDirectory(prefix="sunspot-bench-") as name:
        folder = Path(name)
        port, dashboard, client, agent = free_ports(4)
        address = f"{ray_host()}:{port}"
        config = folder / "autoscaler.json"
        config.write_text(json.dumps(_config(address, maximum, idle_minutes)))
        environment = token_environment(folder) | {
            "RAY_TMPDIR": name,
            "RAY_FAKE_CLUSTER": "1",
            "RAY_enable_autoscaler_v2": "1",
            "RAY_CLOUD_INSTANCE_ID": HEAD_ID,
            "RAY_OVERRIDE_NODE_ID_FOR_TESTING": HEAD_ID,
        }
        command = [str(BIN / "ray"), "start", "--head", "--block", "--num-cpus=1"]
        command += [f"--port={port}", f"--dashboard-port={dashboard}", f"--temp-dir={name}"]
        command += [f"--ray-client-server-port={client}", f"--dashboard-agent-listen-port={agent}"]
        command += [f"--autoscaling-config={config}", "--disable-usage-stats"]
        with (folder / "head.log").open("wb") as log:
            head = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
        try:
            _wait_until_ready(folder / "head.log", head)
            yield environment, address
        finally:
            _end_all(head)


def _config(address: str, maximum: int, idle_minutes: float) -> dict[str, object]:
    # Without memory, which this provider hands to Ray in a way that it refuses (2.60).
    worker = {
        "resources": {"CPU": CPUS_A_NODE},
        "node_config": {},
        "min_workers": 0,
        "max_workers": maximum,
    }
    head = {"resources": {"CPU": 1}, "node_config": {}, "max_workers": 0}
    # By its class: the wheel lacks the default settings of its name (fake_multi_node/example.yaml).
    provider = {"type": "external", "module": RAYS_PROVIDER, "gcs_address": address}
    commands = ("setup_commands", "head_setup_commands", "worker_setup_commands")
    return {
        "cluster_name": STACK,
        "max_workers": maximum,
        "upscaling_speed": 1.0,
        "idle_timeout_minutes": idle_minutes,
        "provider": {
            **provider,
            "launch_multiple": True,
            "head_node_id": HEAD_ID,
            "disable_node_updaters": True,
        },
        "available_node_types": {"ray.head.default": head, GROUP: worker},
        "head_node_type": "ray.head.default",
        **{key: [] for key in (*commands, "initialization_commands", "cluster_synced_files")},
        "file_mounts": {},
        "auth": {},
    }


def _wait_until_ready(log: Path, head: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 60
    while "Ray runtime started" not in log.read_text():
        if head.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError(log.read_text())
        time.sleep(0.02)


def _end_all(head: subprocess.Popen[bytes]) -> None:
    """Ends the head; its provider's nodes are children of its autoscaler, and would outlive it."""
    own = psutil.Process(head.pid)
    tree = own.children(recursive=True)
    head.send_signal(signal.SIGTERM)
    # Ctrl-C reaches it too, and then it may not end.
    with contextlib.suppress(subprocess.TimeoutExpired):
        head.wait(timeout=30)
    _, alive = psutil.wait_procs([own, *tree], timeout=5)
    for process in alive:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    psutil.wait_procs(alive, timeout=10)
