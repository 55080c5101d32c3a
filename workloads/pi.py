"""Estimate pi from random points, and show the estimate as it improves.

Tasks throw points into a square and count those inside the circle. Each reports its progress to an
actor; the driver asks the actor and shows the estimate so far. The same --seed and --samples give
the same result on any cluster, because the random numbers belong to fixed pieces of the work and
not to the workers.
"""

import argparse
import math
import random
import time
from itertools import pairwise
from typing import Any

import ray
from _common import (
    Place,
    Progress,
    Result,
    connect,
    here,
    natural,
    on_this_node,
    one_worker_seconds,
    parser,
    positive,
    program,
    warm_up,
)

PIECE = 250_000  # points that share a random generator; some 20 ms of work
REPORT_EVERY = 0.25  # seconds: often enough to watch, and the actor keeps up with 1,000 tasks
TASKS_A_CPU = 4

Piece = tuple[int, int, int]
"""The seed, the piece's number, and how many points it has."""

Thrown = tuple[Place, int]
"""Where a task ran, and how many of its points are inside."""


def hits(seed: int, number: int, points: int) -> int:
    """Return how many of a piece's points fall inside the quarter circle."""
    draw = random.Random(f"{seed}/{number}").random  # noqa: S311  (statistics, not secrets)
    inside = 0
    for _ in range(points):
        x, y = draw(), draw()
        if x * x + y * y <= 1.0:
            inside += 1
    return inside


def pieces(seed: int, samples: int) -> list[Piece]:
    """Return the work in pieces, which are the same on every cluster."""
    starts = range(0, samples, PIECE)
    return [(seed, number, min(PIECE, samples - start)) for number, start in enumerate(starts)]


def deal(work: list[Piece], hands: int) -> list[list[Piece]]:
    """Return the pieces in at most ``hands`` contiguous parts of nearly equal length."""
    hands = min(hands, len(work))
    edges = [len(work) * hand // hands for hand in range(hands + 1)]
    return [work[begin:end] for begin, end in pairwise(edges)]


@ray.remote(num_cpus=0)
class Tally:
    """Adds up what the tasks report while they run.

    A report holds a task's totals so far and replaces its previous report. So a task that runs
    again, because its node was evicted, is not counted twice.
    """

    def __init__(self) -> None:
        self._reports: dict[int, tuple[int, int]] = {}

    def report(self, task: int, points: int, inside: int) -> None:
        """Record a task's totals so far."""
        self._reports[task] = (points, inside)

    def totals(self) -> tuple[int, int]:
        """Return the points thrown and those inside, over all tasks."""
        thrown = sum(points for points, _ in self._reports.values())
        return thrown, sum(inside for _, inside in self._reports.values())


@ray.remote(num_cpus=1)
def _sample(tally: Any, task: int, part: list[Piece]) -> Thrown:
    points = inside = 0
    reported = time.monotonic()
    for piece in part:
        inside += hits(*piece)
        points += piece[2]
        if time.monotonic() - reported >= REPORT_EVERY:
            tally.report.remote(task, points, inside)
            reported = time.monotonic()
    # The result comes back with the task, which waits for no report: Ray would give the CPU of a
    # task that waits to another one, and start a worker process for that.
    tally.report.remote(task, points, inside)
    return here(), inside


def estimate(points: int, inside: int) -> float:
    """Return four times the share of the points that are inside."""
    return 4 * inside / points


def start_tally() -> Any:
    """Return an actor that is ready to add up."""
    tally: Any = Tally.options(scheduling_strategy=on_this_node()).remote()
    ray.get(tally.totals.remote())
    return tally


def throw(tally: Any, parts: list[list[Piece]], samples: int) -> list[Thrown]:
    """Return what each task did; show the tally meanwhile."""
    spread = _sample.options(name="pi", scheduling_strategy="SPREAD")
    refs = [spread.remote(tally, task, part) for task, part in enumerate(parts)]
    waiting = refs
    with Progress() as progress:
        while waiting:
            _, waiting = ray.wait(waiting, num_returns=len(waiting), timeout=0.5)
            points, inside = ray.get(tally.totals.remote())
            if points:
                now = f"{points / samples:4.0%} of the points: pi is about"
                progress.show(f"{now} {estimate(points, inside):.6f}")
    return ray.get(refs)


def _arguments(argv: list[str] | None) -> argparse.Namespace:
    made = parser(__doc__, "python workloads/pi.py --samples 100000000 --seed 7 --out pi.json")
    made.add_argument(
        "--samples", type=positive, default=20_000_000, metavar="N", help="points to throw"
    )
    made.add_argument(
        "--seed", type=natural, default=0, metavar="N", help="seed of the random numbers"
    )
    made.add_argument(
        "--tasks", type=positive, metavar="N", help=f"tasks (default: {TASKS_A_CPU} per CPU)"
    )
    made.add_argument(
        "--baseline", action="store_true", help="also time the same work in one worker"
    )
    return made.parse_args(argv)


@program
def main(argv: list[str] | None = None) -> None:
    """Estimate pi as the command line asks."""
    args = _arguments(argv)
    cpus = connect()
    work = pieces(args.seed, args.samples)
    baseline = one_worker_seconds(hits, work) if args.baseline else None
    warm_up(cpus)
    tally = start_tally()
    began = time.perf_counter()
    thrown = throw(tally, deal(work, args.tasks or TASKS_A_CPU * cpus), args.samples)
    seconds = time.perf_counter() - began
    value = estimate(args.samples, sum(inside for _, inside in thrown))
    error = value - math.pi
    Result(
        workload="pi",
        places=[place for place, _ in thrown],
        seconds=seconds,
        one_worker_seconds=baseline,
        summary=f"pi is about {value:.6f}, {error:+.6f} off, from {args.samples:,} points",
    ).report(args.out, estimate=value, samples=args.samples, error=error, seed=args.seed)


if __name__ == "__main__":
    main()
