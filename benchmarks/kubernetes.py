"""From the command to the first task's result: `sunspot up` and a program, beside kubectl's way.

The peer is what KubeRay's "RayCluster Quickstart" does: `kubectl apply` of its sample RayCluster,
with the same sizes and image, a poll until it is ready, and a program in the head's pod by `kubectl
exec`; ours is `sunspot up` and the same program there by `sunspot ssh`. With --job, both send it as
a job: `sunspot submit`, and the page's second way, `ray job submit`. Needs a kubeconfig for a
Kubernetes with KubeRay's operator, and kubectl for the peer. Each run makes a namespace and deletes
it; deleting does not count.

    python benchmarks/kubernetes.py --image rayproject/ray:2.60.0-py311
"""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import _options
import yaml
from _cluster import BIN
from _pairs import compare

POLL_S = 0.5
HEAD = {"cpu": 1, "memory_gb": 3}
WORKER = {"cpu": 1, "memory_gb": 2}
TASK = "import ray; ray.init(); print('result', ray.get(ray.remote(lambda: 7).remote()))"


def main() -> None:
    """Print the comparison; the last line is JSON."""
    parser = _options.parser(__doc__)
    parser.add_argument("--image", required=True, help="image of Ray that the nodes have or pull")
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--job", action="store_true", help="send the program as a job")
    asked = parser.parse_args()
    compare(
        "kubernetes",
        lambda: _timed(partial(_ours, as_job=asked.job), asked.image),
        lambda: _timed(partial(_peer, as_job=asked.job), asked.image),
        asked.pairs,
        peer_name="kubectl apply",
        aim=1.05,
        extra={"way": "job" if asked.job else "exec"},
    )


def _timed(run: Callable[[str, str, Path], None], image: str) -> float:
    with _namespace() as namespace, tempfile.TemporaryDirectory(prefix="sunspot-bench-") as folder:
        begin = time.monotonic()
        run(namespace, image, Path(folder))
        seconds = time.monotonic() - begin
        _sunspot(Path(folder), "down", "bench", check=False)
        return seconds


@contextmanager
def _namespace() -> Iterator[str]:
    name = f"bench-{secrets.token_hex(3)}"
    _kubectl("create", "namespace", name)
    try:
        yield name
    finally:
        _kubectl("delete", "namespace", name)


def _ours(namespace: str, image: str, folder: Path, *, as_job: bool) -> None:
    group = {"worker_nodes": WORKER, "market": "on-demand"}
    config = {
        "sunspot:target": "kubernetes",
        "sunspot:image": {"reference": image},
        "sunspot:cluster": {"head_node": HEAD, "scaling_groups": [group]},
        "sunspot:kubernetes": {"namespace": namespace},
    }
    (folder / "Pulumi.yaml").write_text("name: bench\nruntime: python\n")
    (folder / "Pulumi.bench.yaml").write_text(yaml.safe_dump({"config": config}))
    (folder / "empty").mkdir()
    _sunspot(folder, "up", "bench")
    job = ("submit", "--stack", "bench", "--working-dir", "empty")
    way = job if as_job else ("ssh", "bench")
    assert "result 7" in _sunspot(folder, *way, "--", "python", "-c", TASK)


def _peer(namespace: str, image: str, folder: Path, *, as_job: bool) -> None:  # noqa: ARG001
    _kubectl(
        "apply", "--namespace", namespace, "--filename=-", stdin=yaml.safe_dump(_sample(image))
    )
    while _state(namespace) != "ready":
        time.sleep(POLL_S)
    selector = "ray.io/node-type=head"
    head = _kubectl("get", "pods", "-n", namespace, "--selector", selector, "--output=name").strip()
    job = ("ray", "job", "submit", "--address", "http://127.0.0.1:8265", "--")
    program = (*(job if as_job else ()), "python", "-c", TASK)
    said = _kubectl("exec", "-n", namespace, head, "--", *program)
    assert "result 7" in said


def _state(namespace: str) -> str:
    found = json.loads(_kubectl("get", "raycluster", "bench", "-n", namespace, "--output=json"))
    return found.get("status", {}).get("state", "")


def _sample(image: str) -> dict[str, Any]:
    """KubeRay's ray-cluster.sample.yaml (ray-operator/config/samples, 1.6), with our sizes."""

    def template(name: str, node: dict[str, int]) -> dict[str, Any]:
        amounts = {"cpu": str(node["cpu"]), "memory": f"{node['memory_gb']}Gi"}
        resources = {"requests": amounts, "limits": amounts}
        return {"spec": {"containers": [{"name": name, "image": image, "resources": resources}]}}

    return {
        "apiVersion": "ray.io/v1",
        "kind": "RayCluster",
        "metadata": {"name": "bench"},
        "spec": {
            "rayVersion": "2.60.0",
            "headGroupSpec": {"rayStartParams": {}, "template": template("ray-head", HEAD)},
            "workerGroupSpecs": [
                {
                    "replicas": 1,
                    "minReplicas": 1,
                    "maxReplicas": 5,
                    "groupName": "workergroup",
                    "rayStartParams": {},
                    "template": template("ray-worker", WORKER),
                }
            ],
        },
    }


def _sunspot(folder: Path, *arguments: str, check: bool = True) -> str:
    environment = os.environ | {"SUNSPOT_STATE_DIR": str(folder / "state")}
    done = subprocess.run(
        [str(BIN / "sunspot"), *arguments],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0 or not check, done.stderr
    return done.stdout


def _kubectl(*arguments: str, stdin: str | None = None) -> str:
    done = subprocess.run(
        ["/usr/bin/env", "kubectl", *arguments],
        input=stdin,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


if __name__ == "__main__":
    main()
