"""Requests a second of one replica of Ray Serve, and the 99th percentile of their latency.

Compares `sunspot up` and `sunspot serve deploy` with plain `ray start` and `serve run`: the same
application on one node, the same clients on this machine. It prints the seconds that a thousand
requests take. Needs Ray Serve (make setup-serve).

    python benchmarks/serve.py
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

import _options
import requests
from _cluster import BIN, STACK, free_ports, plain_ray, project, ray_host
from _local_ray import WORKLOADS
from _pairs import compare

PAIRS = 5
AIM = 1.02
CLIENTS = 16
WARM_S, SECONDS = 2.0, 8.0
START_S = 120.0

APP = """
from ray import serve

@serve.deployment(max_ongoing_requests=100, ray_actor_options={"num_cpus": 1})
class Echo:
    async def __call__(self, request):
        return {"bytes": len(await request.body())}

app = Echo.bind()
"""


class Side:
    """One side's runs, and what they found."""

    def __init__(self) -> None:
        self.rates: list[float] = []
        self.p99_ms: list[float] = []

    def seconds(self, url: str) -> float:
        """Return the seconds that a thousand requests take."""
        sys.path.insert(0, str(WORKLOADS))
        from _http_load import measure

        measure(url, [b"x"], CLIENTS, WARM_S, lambda _seen: None)
        seen = measure(url, [b"x"], CLIENTS, SECONDS, lambda _seen: None)
        assert not seen.failures, seen.failures[:3]
        self.rates.append(seen.rate)
        self.p99_ms.append(1000 * seen.percentile(0.99))
        return 1000 / seen.rate

    def medians(self) -> dict[str, float]:
        """Return the medians so far."""
        return {
            "requests_per_second": round(median(self.rates), 1),
            "p99_ms": round(median(self.p99_ms), 1),
        }


def write_app(folder: Path) -> None:
    """Write the application into a folder of its own."""
    folder.mkdir(exist_ok=True)
    (folder / "echo.py").write_text(APP)


def ours(side: Side) -> float:
    """Return the seconds of a thousand requests to a cluster of ours."""
    with project(workers=0) as made:
        made.sunspot("up", STACK)
        write_app(made.folder / "app")
        (port,) = free_ports(1)
        deploy = ("serve", "deploy", "echo:app", "--working-dir", "app", "--port", str(port))
        made.sunspot(*deploy)
        return side.seconds(f"http://127.0.0.1:{port}/")


def peer(side: Side) -> float:
    """Return the same for `serve run` on a node of `ray start`."""
    with tempfile.TemporaryDirectory() as name, plain_ray(0, ray_host()) as cluster:
        folder = Path(name)
        write_app(folder)
        (port,) = free_ports(1)
        config: dict[str, Any] = {
            "http_options": {"host": "127.0.0.1", "port": port},
            "applications": [{"name": "default", "import_path": "echo:app"}],
        }
        (folder / "serve.json").write_text(json.dumps(config))
        command = [str(BIN / "serve"), "run", "serve.json", "--address", cluster.address]
        log = (folder / "log").open("w+")
        with (
            log,
            subprocess.Popen(
                command, cwd=folder, env=dict(cluster.environment), stdout=log, stderr=log
            ) as process,
        ):
            try:
                url = f"http://127.0.0.1:{port}/"
                _wait_for_answer(url, folder / "log", [process, *cluster.nodes])
                return side.seconds(url)
            finally:
                process.terminate()


def _wait_for_answer(url: str, log: Path, needed: Sequence[subprocess.Popen[bytes]]) -> None:
    deadline = time.monotonic() + START_S
    while True:
        try:
            if requests.post(url, data=b"x", timeout=START_S).ok:
                return
        except requests.ConnectionError:
            pass
        ended = [process.args for process in needed if process.poll() is not None]
        if ended or time.monotonic() > deadline:
            raise RuntimeError(f"ended: {ended}\n{log.read_text()}")
        time.sleep(0.1)


def main() -> None:
    """Print the comparison; its last line is JSON."""
    options = _options.parser(__doc__)
    options.add_argument("--pairs", type=int, default=PAIRS, metavar="N", help="how many pairs")
    pairs = options.parse_args().pairs
    mine, theirs = Side(), Side()
    further: dict[str, Any] = {}

    def measured(run: Any, side: Side, name: str) -> float:
        seconds = run(side)
        further[name] = side.medians()
        return seconds

    compare(
        "serve",
        lambda: measured(ours, mine, "ours_serve"),
        lambda: measured(peer, theirs, "peer_serve"),
        pairs,
        peer_name="serve run",
        aim=AIM,
        extra=further,
    )


if __name__ == "__main__":
    main()
