"""Show that a node's Ray workers share one copy of an array, where processes need one each.

An array is put into Ray's object store once. Each worker computes its mean and standard deviation
directly from the store, and then reads its own memory use. The same is done with multiprocessing,
which sends every process a copy. Workers on one node share a copy; another node needs one copy of
its own. Needs numpy.
"""

import argparse
import asyncio
import multiprocessing
import resource
import sys
import time
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import TYPE_CHECKING, Any

import ray
from _common import (
    Place,
    Progress,
    Result,
    connect,
    count,
    follow,
    here,
    natural,
    on_this_node,
    parser,
    positive,
    program,
    say,
)
from ray.exceptions import ObjectStoreFullError

if TYPE_CHECKING:
    import numpy as np

try:
    import numpy
except ImportError:  # main reports it, with the usage text
    numpy = None

MB = 1_000_000
BLOCK = 131_072  # numbers at a time, 1 MiB: fits a core's cache
MOST_WORKERS = 8  # by default: multiprocessing needs a copy for each on the driver's machine
BARE_PROCESS_MB = 150  # a generous estimate of a Python process with ray and numpy
WAIT = 300.0  # seconds that a process waits for the others before it gives up
TOLERANCE = 1e-9
PEER = "multiprocessing"
ROLLUP = Path("/proc/self/smaps_rollup")


def mean_and_std(array: "np.ndarray") -> tuple[float, float]:
    """Return the mean and the standard deviation, and copy no more than a block at a time.

    ``numpy.std`` would make a temporary array as large as the one it is given, in each worker.
    """
    blocks = range(0, array.size, BLOCK)
    mean = sum(float(array[at : at + BLOCK].sum()) for at in blocks) / array.size
    squares = 0.0
    for at in blocks:
        away = array[at : at + BLOCK] - mean
        squares += float(away @ away)
    return mean, (squares / array.size) ** 0.5


# A process's own memory


def own_memory() -> dict[str, float | None]:
    """Return this process's memory in MB.

    ``pss_mb`` is its proportional share: a page that n processes map counts 1/n, so the shares
    of all processes add up to what the machine really uses. Only Linux reports it. Elsewhere
    ``rss_mb`` is the largest size so far and the other values are None.
    """
    if not ROLLUP.exists():
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        rss = peak if sys.platform == "darwin" else peak * 1024
        return {"pss_mb": None, "rss_mb": rss / MB, "shared_mb": None, "private_mb": None}
    rows = (line.split() for line in ROLLUP.read_text().splitlines()[1:])
    size = {row[0].rstrip(":"): int(row[1]) * 1024 / MB for row in rows}
    return {
        "pss_mb": size["Pss"],
        "rss_mb": size["Rss"],
        "shared_mb": size["Shared_Clean"] + size["Shared_Dirty"],
        "private_mb": size["Private_Clean"] + size["Private_Dirty"],
    }


# With Ray


@ray.remote(num_cpus=0)
class TaskBarrier:
    """Holds each task that arrives until all tasks have arrived.

    A task that waits in ``ray.get`` releases its CPU to the next task, so this also works with more
    workers than CPUs. It counts task numbers, so a task that runs again counts once.
    """

    def __init__(self, tasks: int) -> None:
        self._tasks = tasks
        self._arrived: dict[str, set[int]] = {}
        self._complete: dict[str, asyncio.Event] = {}

    async def arrive(self, stage: str, task: int) -> None:
        """Return when every task has arrived at the stage."""
        arrived = self._arrived.setdefault(stage, set())
        complete = self._complete.setdefault(stage, asyncio.Event())
        arrived.add(task)
        if len(arrived) == self._tasks:
            complete.set()
        await complete.wait()


Measured = tuple[Place, tuple[float, float], dict[str, float | None]]


@ray.remote(num_cpus=1)
def _measure(array: "np.ndarray", task: int, barrier: Any) -> Measured:
    answer = mean_and_std(array)
    # Read while all tasks map the array; otherwise the shares would depend on their order.
    ray.get(barrier.arrive.remote("computed", task))
    memory = own_memory()
    ray.get(barrier.arrive.remote("measured", task))
    return here(), answer, memory


def with_ray(ref: Any, workers: int) -> list[Measured]:
    """Return what each worker computed from the array behind the reference, and its memory."""
    barrier = TaskBarrier.options(scheduling_strategy=on_this_node()).remote(workers)
    spread = _measure.options(name="object_store", scheduling_strategy="SPREAD")
    refs = [spread.remote(ref, task, barrier) for task in range(workers)]
    return follow(refs, "workers with Ray")


# With multiprocessing


def _child(pipe: Connection, barrier: Barrier) -> None:
    array = pipe.recv()
    answer = mean_and_std(array)
    barrier.wait(WAIT)
    memory = own_memory()
    barrier.wait(WAIT)
    pipe.send((answer, memory))


def with_multiprocessing(array: "np.ndarray", workers: int) -> list[Measured]:
    """Return what each process computed from its copy of the array, and its memory.

    Each gets its copy through a pipe. They are spawned, because a fork of a process that runs Ray's
    threads may hang.
    """
    context = multiprocessing.get_context("spawn")
    barrier = context.Barrier(workers)
    node, _ = here()
    children: list[tuple[Any, Connection]] = []
    try:
        for _ in range(workers):
            ours, theirs = context.Pipe()
            child = context.Process(target=_child, args=(theirs, barrier), daemon=True)
            child.start()
            theirs.close()  # otherwise the death of a child would go unnoticed
            children.append((child, ours))
        with Progress() as progress:
            for sent, (_, pipe) in enumerate(children, 1):
                pipe.send(array)
                progress.show(f"{sent} of {workers} processes have a copy")
        return [((node, child.pid), *pipe.recv()) for child, pipe in children]
    finally:
        for child, _ in children:
            child.join(1)
            if child.is_alive():
                child.terminate()


def room_for(workers: int, megabytes: int) -> str | None:
    """Return why this machine lacks the memory for a copy in each process, or None."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return None
    size = {line.partition(":")[0]: line.split()[1] for line in lines}
    free = int(size["MemAvailable"]) * 1024 / MB
    # The receiver holds the bytes and, for a moment, the array made of them.
    need = workers * (2 * megabytes + BARE_PROCESS_MB)
    return None if need <= free else f"{need:,} MB needed, {free:,.0f} MB free"


# The program


def side(array_mb: float, seconds: float, measured: list[Measured]) -> dict[str, Any]:
    """Return one side of the comparison, as it is written to the file."""
    workers = [{"node": node, "pid": pid, **memory} for (node, pid), _, memory in measured]
    shares = [memory["pss_mb"] for _, _, memory in measured]
    total = sum(share for share in shares if share is not None) if all(shares) else None
    return {"array_mb": array_mb, "seconds": seconds, "total_pss_mb": total, "workers": workers}


def table(memory: dict[str, dict[str, Any]]) -> str:
    """Return a line for each worker of either side, under a header."""
    rows = [f"{'':16}{'node':10}{'pid':>8}{'share MB':>10}{'own MB':>9}{'size MB':>9}"]
    for name, half in memory.items():
        for worker in half["workers"]:
            cells = (worker["pss_mb"], worker["private_mb"], worker["rss_mb"])
            share, own, size = ("-" if cell is None else f"{cell:.0f}" for cell in cells)
            place = f"{worker['node'][:8]:10}{worker['pid']:8}"
            rows.append(f"{name:16}{place}{share:>10}{own:>9}{size:>9}")
    return "\n".join(rows)


def check(measured: list[Measured], truth: tuple[float, float]) -> None:
    """End the program if a worker's answer differs from numpy's."""
    for place, answer, _ in measured:
        if any(abs(ours - true) > TOLERANCE for ours, true in zip(answer, truth, strict=True)):
            sys.exit(f"Worker {place[1]} found {answer} where numpy finds {truth}")


def _arguments(argv: list[str] | None) -> tuple[argparse.ArgumentParser, argparse.Namespace]:
    made = parser(__doc__, "python workloads/object_store.py --megabytes 400 --workers 4")
    made.add_argument(
        "--megabytes", type=positive, default=200, metavar="N", help="size of the array"
    )
    made.add_argument(
        "--workers",
        type=positive,
        metavar="N",
        help=f"tasks at the same time (default: one per CPU, from 2 to {MOST_WORKERS})",
    )
    made.add_argument("--seed", type=natural, default=0, metavar="N", help="seed of the array")
    made.add_argument(
        "--only-ray", action="store_true", help="leave out the comparison with multiprocessing"
    )
    return made, made.parse_args(argv)


def _put(array: "np.ndarray") -> Any:
    try:
        return ray.put(array)
    except ObjectStoreFullError:
        sys.exit(f"{array.nbytes / MB:.0f} MB do not fit in the object store: lower --megabytes")


def _compare(ref: Any, workers: int, array_mb: float, truth: tuple[float, float]) -> dict[str, Any]:
    """Return multiprocessing's side, or why it was left out."""
    if problem := room_for(workers, round(array_mb)):
        say(f"Left out multiprocessing: {problem}")
        return {"array_mb": array_mb, "skipped": problem, "total_pss_mb": None, "workers": []}
    began = time.perf_counter()
    measured = with_multiprocessing(ray.get(ref), workers)
    check(measured, truth)
    return side(array_mb, time.perf_counter() - began, measured)


def _summary(memory: dict[str, dict[str, Any]], workers: int, nodes: int) -> str:
    ours, theirs = (memory.get(name, {}).get("total_pss_mb") for name in ("ray", PEER))
    array_mb = memory["ray"]["array_mb"]
    text = f"{count(workers, 'worker')} read {array_mb:.0f} MB from {nodes} shared " + (
        "copy" if nodes == 1 else "copies, one per node"
    )
    if ours is not None:
        text += f": {ours:,.0f} MB in all"
    if theirs is not None:
        text += f", where multiprocessing's {workers} copies take {theirs:,.0f} MB"
    return text


@program
def main(argv: list[str] | None = None) -> None:
    """Measure what the command line asks for."""
    made, args = _arguments(argv)
    if numpy is None:
        made.error("this workload needs numpy: pip install numpy")
    cpus = connect()
    workers = args.workers or min(MOST_WORKERS, max(2, cpus))
    array = numpy.random.default_rng(args.seed).normal(3.0, 2.0, args.megabytes * MB // 8)
    array_mb, truth = array.nbytes / MB, (float(array.mean()), float(array.std()))
    began = time.perf_counter()
    ref = _put(array)
    del array  # the copy in the store is the only one from here on
    measured = with_ray(ref, workers)
    seconds = time.perf_counter() - began
    check(measured, truth)
    memory = {"ray": side(array_mb, seconds, measured)}
    if not args.only_ray:
        memory[PEER] = _compare(ref, workers, array_mb, truth)
    say(table(memory))
    if not ROLLUP.exists():
        say("This system does not report a process's share of shared memory; sizes are peaks.")
    places = [place for place, _, _ in measured]
    Result(
        workload="object_store",
        places=places,
        seconds=seconds,
        summary=_summary(memory, workers, len({node for node, _ in places})),
    ).report(args.out, mean=measured[0][1][0], std=measured[0][1][1], memory=memory)


if __name__ == "__main__":
    main()
