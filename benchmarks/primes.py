"""Compare the primes workload on Ray with multiprocessing.Pool on the same cores.

Both sides run the same function over the same batches, in workers that were started before.
"""

import importlib.util
import io
import multiprocessing
import os
import sys
import time
from contextlib import redirect_stdout
from statistics import median
from types import ModuleType
from typing import Any

import _options
from _local_ray import WORKLOADS, own_ray_settings, ray_with
from _pairs import compare

FIRST, LAST = 9_000_000, 9_900_000  # a few seconds on two cores
DEFAULT_FIRST, DEFAULT_LAST = 9_000_000, 9_010_000
NAIVE_RUNS = 3
PAIRS = 7
AIM = 1.05


def load_workload() -> ModuleType:
    """Return workloads/primes.py under a name that this file, also primes.py, does not have."""
    from ray import cloudpickle

    sys.path.insert(0, str(WORKLOADS))
    spec = importlib.util.spec_from_file_location("primes_workload", WORKLOADS / "primes.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    cloudpickle.register_pickle_by_value(module)  # a Ray worker cannot import that name
    return module


def naive(workload: Any) -> dict[str, float]:
    """Return the seconds of one task per number on the default range, and those of batches."""
    numbers = DEFAULT_LAST - DEFAULT_FIRST + 1
    parts = {"naive": numbers, "batched": workload.BATCHES_A_CPU * (os.cpu_count() or 1)}
    seconds = {
        name: median(
            workload.find(workload.split(DEFAULT_FIRST, DEFAULT_LAST, count)).seconds
            for _ in range(NAIVE_RUNS)
        )
        for name, count in parts.items()
    }
    print(f"{numbers:,} numbers, one task per number: {seconds['naive']:.3f} s")
    print(f"{numbers:,} numbers, {parts['batched']} tasks: {seconds['batched']:.3f} s\n")
    return {name: round(value, 4) for name, value in seconds.items()}


def measure(workload: Any, batches: list[Any], pool: Any) -> None:
    """Print the comparison of the pool and the Ray cluster that this process is connected to."""
    answers: dict[str, list[int]] = {}

    def ours() -> float:
        with redirect_stdout(io.StringIO()):  # its progress would appear between the table's rows
            found = workload.find(batches)
        answers["ours"] = found.primes
        return found.seconds

    def peer() -> float:
        began = time.perf_counter()
        parts = pool.starmap(workload.primes_in, batches, chunksize=1)
        seconds = time.perf_counter() - began
        answers["peer"] = [prime for part in parts for prime in part]
        return seconds

    cpus = os.cpu_count() or 1
    workload.warm_up(cpus)
    pool.map(workload.is_prime, range(1000))
    extra = {"naive": naive(workload), "cpus": cpus, "range": [FIRST, LAST]}
    compare("primes", ours, peer, PAIRS, peer_name="multiprocessing", aim=AIM, extra=extra)
    assert answers["ours"] == answers["peer"]


def main() -> None:
    """Print the comparison; its last line is JSON."""
    _options.parser(__doc__).parse_args()
    cpus = os.cpu_count() or 1
    with own_ray_settings() as folder:
        workload = load_workload()
        batches = workload.split(FIRST, LAST, workload.BATCHES_A_CPU * cpus)
        print(f"{cpus} CPUs; starting Ray and a pool", flush=True)
        # Forked before Ray runs, because a fork of a process with Ray's threads may hang.
        with multiprocessing.get_context("fork").Pool(cpus) as pool, ray_with(cpus, folder):
            measure(workload, batches, pool)


if __name__ == "__main__":
    main()
