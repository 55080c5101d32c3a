"""How long until a result comes from a node that did not exist when it was asked for.

Compares an elastic group of `sunspot up` with Ray's autoscaler at its defaults over the provider of
processes on one machine that Ray's own tests use (`fake_multinode`). Both use token authentication,
and the demand comes anywhere between two ticks of the autoscaler.

    python benchmarks/demand.py
    python benchmarks/demand.py --nodes 20 --pairs 2

The last line also has the CPU seconds in a minute of each side's idle autoscaler.
"""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Mapping
from statistics import median

import _options
import psutil
from _cluster import BIN, CPUS_A_NODE, project
from _pairs import compare
from _rays_autoscaler import ray_head

PAIRS = 5
DEMANDS = 3
WINDOW_S = 20
MINUTE_S = 60

# Each actor fills a node, so each demand needs nodes that are not there. Prints their seconds.
DRIVER = f"""
import json, os, random, time, ray
ray.init(address=os.environ["RAY_ADDRESS"], log_to_driver=False, logging_level="ERROR")
class Place:
    def node(self):
        return ray.get_runtime_context().get_node_id()
place = ray.remote(num_cpus={CPUS_A_NODE})(Place)
count, kept, seconds = int(os.environ["NODES"]), [], []
for _ in range(int(os.environ["DEMANDS"])):
    time.sleep(random.uniform(0, 5))
    before = {{node["NodeID"] for node in ray.nodes()}}
    started = time.monotonic()
    actors = [place.remote() for _ in range(count)]
    ran = set(ray.get([actor.node.remote() for actor in actors]))
    seconds.append(time.monotonic() - started)
    assert len(ran) == count and not ran & before, (ran, before)
    kept += actors
print(json.dumps(seconds))
"""


class Measured:
    """The seconds of one side's demands, and what its autoscaler costs."""

    def __init__(self) -> None:
        self.cpu_seconds: list[float] = []

    def run(self, environment: Mapping[str, str], address: str, nodes: int) -> float:
        """Return the median seconds of demands for so many nodes of one cluster."""
        self.cpu_seconds.append(_autoscaler_cpu_seconds(address))
        done = subprocess.run(
            [str(BIN / "python"), "-c", DRIVER],
            env={
                **environment,
                "RAY_ADDRESS": address,
                "NODES": str(nodes),
                "DEMANDS": str(_demands(nodes)),
            },
            check=True,
            stdout=subprocess.PIPE,
            text=True,
        )
        # Ray may say something on stdout after it.
        (seconds,) = [line for line in done.stdout.splitlines() if line.startswith("[")]
        return median(json.loads(seconds))


def sunspot_up(nodes: int, measured: Measured) -> float:
    """Return the median seconds of a demand in a cluster of `sunspot up`."""
    with project(nodes * _demands(nodes), minimum=0, head_cpus=1) as made:
        return measured.run(*made.up(), nodes)


def rays_autoscaler(nodes: int, measured: Measured) -> float:
    """Return the same of Ray's own autoscaler, provider and settings."""
    with ray_head(nodes * _demands(nodes)) as (environment, address):
        return measured.run(environment, address, nodes)


def _autoscaler_cpu_seconds(address: str) -> float:
    """The CPU seconds in a minute of the idle autoscaler of the cluster at this address."""
    time.sleep(WINDOW_S / 2)  # what runs once after a start
    # Drivers may get the same address in another form.
    port = address.rpartition(":")[2]
    (monitor,) = [
        process
        for process in psutil.process_iter(["cmdline"])
        if any(word.endswith("autoscaler/v2/monitor.py") for word in process.info["cmdline"] or ())
        and any(_is_gcs_at(port, word) for word in process.info["cmdline"])
    ]
    before = monitor.cpu_times()
    time.sleep(WINDOW_S)
    after = monitor.cpu_times()
    used = after.user + after.system - before.user - before.system
    return used * MINUTE_S / WINDOW_S


def _is_gcs_at(port: str, word: str) -> bool:
    return word.startswith("--gcs-address=") and word.endswith(f":{port}")


def _demands(nodes: int) -> int:
    return DEMANDS if nodes == 1 else 1


def main() -> None:
    """Print the comparison; its last line is JSON."""
    options = _options.parser(__doc__)
    options.add_argument("--nodes", type=int, default=1, help="asked for at once; default: 1")
    options.add_argument("--pairs", type=int, default=PAIRS, help=f"default: {PAIRS}")
    given = options.parse_args()
    ours, peer = Measured(), Measured()
    cpu: dict[str, float] = {}

    def kept(seconds: float) -> float:
        for name, side in (("cpu_seconds", ours), ("peer_cpu_seconds", peer)):
            if side.cpu_seconds:
                cpu[name] = round(median(side.cpu_seconds), 3)
        return seconds

    compare(
        "demand" if given.nodes == 1 else f"demand-{given.nodes}",
        lambda: kept(sunspot_up(given.nodes, ours)),
        lambda: kept(rays_autoscaler(given.nodes, peer)),
        given.pairs,
        peer_name="Ray's autoscaler",
        aim=0.5,
        extra=cpu,
    )


if __name__ == "__main__":
    main()
