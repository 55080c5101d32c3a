"""What an idle cluster costs: the CPU seconds in a minute, and the memory, of head and two workers.

Compares `sunspot up` with plain `ray start` of the same nodes.

    python benchmarks/idle.py --pairs 3
"""

from __future__ import annotations

import contextlib
import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from pathlib import Path

import _options
import psutil
from _cluster import STACK, plain_ray, project, ray_host
from _pairs import compare

from sunspot.node.local.folder import ClusterFolder

WORKERS = 2
PAIRS = 3
# Long enough for what runs once after a start, such as Ray's first workers.
SETTLE_S = 20
WINDOW_S = 30
MINUTE_S = 60

Processes = Callable[[], Iterable[psutil.Process]]


def sunspot_up(mebibytes: list[float]) -> float:
    """Return the CPU seconds in a minute of a cluster of `sunspot up`; add its PSS."""
    with project(WORKERS) as made:
        made.sunspot("up", STACK)
        folder = ClusterFolder(made.folder / "state" / "clusters" / STACK)
        return _cpu_seconds(folder.processes, mebibytes)


def ray_start(mebibytes: list[float]) -> float:
    """Return the same of a cluster of `ray start`."""
    with plain_ray(WORKERS, ray_host()) as cluster:
        return _cpu_seconds(cluster.processes, mebibytes)


def _cpu_seconds(processes: Processes, mebibytes: list[float]) -> float:
    time.sleep(SETTLE_S)
    started, before = time.monotonic(), _times(processes())
    time.sleep(WINDOW_S)
    seconds, after = time.monotonic() - started, _times(processes())
    mebibytes.append(sum(map(_pss, processes())) / 2**20)
    used: dict[str, float] = defaultdict(float)
    for process, spent in after.items():
        used[_name(process)] += (spent - before.get(process, 0.0)) * MINUTE_S / seconds
    for name, spent in sorted(used.items(), key=lambda item: -item[1])[:8]:
        print(f"{'':>6}{spent:>10.2f}  {name}", flush=True)
    return sum(used.values())


def _times(processes: Iterable[psutil.Process]) -> dict[psutil.Process, float]:
    found = {}
    for process in processes:
        with contextlib.suppress(psutil.Error):
            times = process.cpu_times()
            found[process] = times.user + times.system
    return found


def _pss(process: psutil.Process) -> float:
    with contextlib.suppress(psutil.Error):
        return process.memory_full_info().pss
    return 0.0


def _name(process: psutil.Process) -> str:
    """The program that a process runs: Python's file or module, or its title."""
    with contextlib.suppress(psutil.Error):
        words = [word for word in process.cmdline() if word and not word.startswith("-")]
        script = next((word for word in words if word.endswith(".py") or "launcher" in word), None)
        return Path((script or words[0]).split()[0]).name
    return "ended"


def main() -> None:
    """Print the comparison; its last line is JSON."""
    options = _options.parser(__doc__)
    options.add_argument("--pairs", type=int, default=PAIRS, help=f"default: {PAIRS}")
    pairs = options.parse_args().pairs
    ours: list[float] = []
    peer: list[float] = []
    pss: dict[str, float] = {}

    def measured(run: Callable[[list[float]], float], kept: list[float], name: str) -> float:
        seconds = run(kept)
        pss[name] = round(statistics.median(kept), 1)
        return seconds

    compare(
        "idle",
        lambda: measured(sunspot_up, ours, "pss_mib"),
        lambda: measured(ray_start, peer, "pss_mib_peer"),
        pairs,
        peer_name="ray start",
        aim=1.0,
        extra=pss,
    )


if __name__ == "__main__":
    main()
