"""The demo's eviction: a spot worker leaves in the middle of the work, and another one comes."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

from sunspot import console
from sunspot.errors import SunspotError
from sunspot.node.events import Event
from sunspot.ray.jobs import JobClient
from sunspot.targets import abilities
from sunspot.targets.evicting import Evicting
from sunspot.targets.history import History
from sunspot.targets.protocol import Target, silent

T = TypeVar("T")

# Long enough for the tasks that run there, short enough for a demo.
NOTICE_S = 10.0
# The work that the eviction falls into, of `primes`: long enough that it is still going on.
WORK_S = 8.0
FIRST, FEWEST_NUMBERS, MOST_NUMBERS = 9_000_000, 200_000, 20_000_000

BUSY_TIMEOUT_S, JOIN_TIMEOUT_S = 120.0, 300.0
POLL_INTERVAL_S = 0.3


def last_number(numbers: int, seconds: float) -> int:
    """The end of a range from FIRST on that takes some WORK_S, where `numbers` took `seconds`."""
    wanted = int(numbers * WORK_S / max(seconds, 0.01))
    return FIRST + min(MOST_NUMBERS, max(FEWEST_NUMBERS, wanted))


def primes_to(last: int) -> int:
    """How many primes there are from FIRST to `last`, by the sieve of Eratosthenes."""
    sieve = bytearray([1]) * (last + 1)
    for factor in range(2, math.isqrt(last) + 1):
        if sieve[factor]:
            sieve[factor * factor :: factor] = bytes(len(range(factor * factor, last + 1, factor)))
    return sum(sieve[FIRST:])


@contextmanager
def eviction(target: Target, name: str, client: JobClient, task: str) -> Iterator[Future[str]]:
    """Evicts a spot worker once it runs a task of that name, beside the block.

    Args:
        target: the cluster's target.
        name: the cluster's name.
        client: its job API.
        task: the tasks' name.

    Yields:
        The name of the node that goes, when it has gone.
    """
    pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix="eviction")
    try:
        yield pool.submit(_evict, target, name, client, task)
    finally:
        # Not waited for after an interrupt: taking the cluster down ends it.
        pool.shutdown(wait=False, cancel_futures=True)


def replacement(target: Target, name: str, before: Collection[str]) -> Event:
    """The event of a node that joined and was not there before; waits for it.

    Raises:
        SunspotError: none came in time.
    """
    history = abilities.need(target, History)

    def joined() -> Event | None:
        events = history.recorded(name).events
        new = (one for one in events if one.kind == "joined" and one.node not in before)
        return next(new, None)

    return _wait(joined, JOIN_TIMEOUT_S, "no worker came in the place of the one that was evicted")


def _evict(target: Target, name: str, client: JobClient, task: str) -> str:
    node = _wait(lambda: _busy(client, task), BUSY_TIMEOUT_S, f"no spot worker ran {task!r}")
    console.out.print(f"{node} is on spot, and is evicted now, with a notice of {NOTICE_S:g} s")
    told = abilities.need(target, Evicting).evict(name, node, NOTICE_S, silent)
    console.out.print(told)
    return node


def _busy(client: JobClient, task: str) -> str | None:
    """A spot worker that runs such a task."""
    running = {
        one["node_id"]
        for one in client.state("tasks")
        if one["name"] == task and one["state"] == "RUNNING"
    }
    spot = [
        node["node_name"]
        for node in client.state("nodes")
        if node["node_id"] in running
        and node["state"] == "ALIVE"
        and (node.get("labels") or {}).get("ray.io/market-type") == "spot"
    ]
    return max(spot, default=None)


def _wait(look: Callable[[], T | None], seconds: float, otherwise: str) -> T:
    deadline = time.monotonic() + seconds
    while (found := look()) is None:
        if time.monotonic() > deadline:
            raise SunspotError(f"{otherwise} within {seconds:.0f} s")
        time.sleep(POLL_INTERVAL_S)
    return found
