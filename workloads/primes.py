"""Find the primes of a range by trial division, in batches spread over a Ray cluster.

Each number is divided by every integer up to its square root. A task of one number would take
microseconds, less than Ray needs to send it, so a task takes a batch of them; --naive shows the
difference. --all-divisors divides by every integer below the number, thousands of times the work.
"""

import argparse
import math
import time
from dataclasses import dataclass
from itertools import pairwise

import ray
from _common import (
    Place,
    Result,
    connect,
    count,
    follow,
    here,
    natural,
    one_worker_seconds,
    parser,
    positive,
    program,
    warm_up,
)

BATCHES_A_CPU = 4  # a few, so that a slower worker does not hold up the rest at the end

Batch = tuple[int, int, bool]
"""The first number, the last number, and whether to try all divisors."""


def is_prime(number: int, all_divisors: bool = False) -> bool:
    """Return whether no integer from 2 to the square root (or to ``number - 1``) divides it."""
    if number < 2:
        return False
    last = number - 1 if all_divisors else math.isqrt(number)
    for divisor in range(2, last + 1):  # noqa: SIM110  (a generator would take twice as long)
        if number % divisor == 0:
            return False
    return True


def primes_in(first: int, last: int, all_divisors: bool = False) -> list[int]:
    """Return the primes from ``first`` to ``last``, both included."""
    return [number for number in range(first, last + 1) if is_prime(number, all_divisors)]


def split(first: int, last: int, parts: int, all_divisors: bool = False) -> list[Batch]:
    """Return the range as at most ``parts`` contiguous batches of nearly equal length."""
    size = last - first + 1
    parts = min(parts, size)
    edges = [first + size * part // parts for part in range(parts + 1)]
    return [(begin, end - 1, all_divisors) for begin, end in pairwise(edges)]


@dataclass(frozen=True)
class Found:
    """The primes in their order, where each task ran, and the seconds from first to last."""

    primes: list[int]
    places: list[Place]
    seconds: float


@ray.remote(num_cpus=1)
def _primes_of(batch: Batch) -> tuple[Place, list[int]]:
    return here(), primes_in(*batch)


def find(batches: list[Batch]) -> Found:
    """Return the primes of all the batches, one task for each batch."""
    began = time.perf_counter()
    # SPREAD: the default strategy fills a node to half before it uses the next.
    spread = _primes_of.options(name="primes", scheduling_strategy="SPREAD")
    answers = follow([spread.remote(batch) for batch in batches], "tasks")
    seconds = time.perf_counter() - began
    return Found(
        primes=[prime for _, primes in answers for prime in primes],
        places=[place for place, _ in answers],
        seconds=seconds,
    )


def _arguments(argv: list[str] | None) -> argparse.Namespace:
    made = parser(__doc__, "python workloads/primes.py 9000000 9500000 --baseline --out found.json")
    made.add_argument("start", nargs="?", type=natural, default=9_000_000, help="first number")
    made.add_argument("stop", nargs="?", type=natural, default=9_010_000, help="last number")
    made.add_argument(
        "--batches", type=positive, metavar="N", help=f"tasks (default: {BATCHES_A_CPU} per CPU)"
    )
    made.add_argument("--naive", action="store_true", help="one task for each number")
    made.add_argument(
        "--all-divisors", action="store_true", help="divide by every integer below the number"
    )
    made.add_argument(
        "--baseline", action="store_true", help="also time the same work in one worker"
    )
    args = made.parse_args(argv)
    if args.stop < args.start:
        made.error(f"the last number, {args.stop}, is below the first, {args.start}")
    if args.naive and args.batches:
        made.error("--naive makes one task for each number: leave out --batches")
    return args


@program
def main(argv: list[str] | None = None) -> None:
    """Find the primes that the command line asks for."""
    args = _arguments(argv)
    cpus = connect()
    parts = args.batches or BATCHES_A_CPU * cpus
    batches = split(args.start, args.stop, parts, args.all_divisors)
    baseline = one_worker_seconds(primes_in, batches) if args.baseline else None
    if args.naive:
        batches = split(args.start, args.stop, args.stop - args.start + 1, args.all_divisors)
    warm_up(cpus)
    found = find(batches)
    first, last = (found.primes[0], found.primes[-1]) if found.primes else (None, None)
    ends = f": {first:,} ... {last:,}" if found.primes else ""
    Result(
        workload="primes",
        places=found.places,
        seconds=found.seconds,
        one_worker_seconds=baseline,
        summary=f"{count(len(found.primes), 'prime')} in {args.start:,} to {args.stop:,}{ends}",
    ).report(
        args.out,
        count=len(found.primes),
        first=first,
        last=last,
        sum=sum(found.primes),
        start=args.start,
        stop=args.stop,
        naive=args.naive,
        all_divisors=args.all_divisors,
    )


if __name__ == "__main__":
    main()
