"""How long until a task has run on each node of a new cluster: head and two workers.

Compares `sunspot up` with `ray.cluster_utils.Cluster`, and with `ray start` called for one node
after the other. All use token authentication; each connects with a driver of its own.

    python benchmarks/bringup.py

With --extras, it compares the cluster of this environment, with the extras that are installed in
it, with that of another one, without them. Both have a driver of the latter; how long `import ray`
takes a driver of each is in the last line too:

    python benchmarks/bringup.py --extras OTHER/.venv
"""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

import _options
from _cluster import (
    BIN,
    CPUS_A_NODE,
    bring_up_seconds,
    plain_ray,
    ray_host,
    run_task_on_each_node,
    token_environment,
)
from _pairs import compare

WORKERS = 2
PAIRS = 5
# What the extras bring that the environment does not have otherwise.
EXTRAS = ("fastapi", "jupyterlab", "torch")

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
    host = ray_host()
    started = time.monotonic()
    with plain_ray(WORKERS, host) as cluster:
        run_task_on_each_node(cluster.environment, cluster.address, WORKERS + 1)
        return time.monotonic() - started


def import_ray_seconds(programs: Path) -> float:
    """Return the median of the seconds of five Pythons that import Ray and end."""
    seconds = []
    for _ in range(5):
        started = time.monotonic()
        subprocess.run([str(programs / "python"), "-c", "import ray"], check=True)
        seconds.append(time.monotonic() - started)
    return round(median(seconds), 4)


def compare_environments(plain: Path, pairs: int) -> None:
    """Print how the bring-up in this environment compares with that in one without extras."""
    found = [name for name in EXTRAS if importlib.util.find_spec(name)]
    if not found:
        raise SystemExit(f"this environment has no extra ({', '.join(EXTRAS)}): make setup-serve")
    programs = plain / "bin"
    compare(
        "bringup-extras",
        lambda: bring_up_seconds(WORKERS, driver=programs),
        lambda: bring_up_seconds(WORKERS, programs),
        pairs,
        peer_name="without extras",
        aim=1.1,
        extra={
            "extras": found,
            "import_ray": import_ray_seconds(BIN),
            "peer_import_ray": import_ray_seconds(programs),
        },
    )


def main() -> None:
    """Print the comparisons; the last line is JSON."""
    options = _options.parser(__doc__)
    extras = "the environment without extras to compare with"
    options.add_argument("--extras", type=Path, metavar="VENV", help=extras)
    options.add_argument("--pairs", type=int, default=PAIRS, metavar="N", help="how many pairs")
    asked = options.parse_args()
    if asked.extras:
        compare_environments(asked.extras, asked.pairs)
        return
    sequential = round(median(ray_start() for _ in range(3)), 4)
    compare(
        "bringup",
        lambda: bring_up_seconds(WORKERS),
        cluster_utils,
        asked.pairs,
        peer_name="ray.cluster_utils.Cluster",
        aim=0.6,
        extra={"ray_start": sequential},
    )


if __name__ == "__main__":
    main()
