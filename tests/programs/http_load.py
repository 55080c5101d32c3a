"""Requests at a steady rate, whether the ones before are answered or not, up to a limit.

Without the limit, a machine that answers more slowly than that collects tens of thousands of them:
it runs out of files, and what fails then is not what the test is about.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

import aiohttp
from waiting import wait_for

# Generous: the machine may be busy, and how fast it answers is not asserted.
TIMEOUT_S = 300.0
# What a busy machine answers in a second at least.
SLOWEST_RATE = 5.0
# As many as one replica may have at once (tests/programs/brought/serves.py).
MOST_AT_ONCE = 100


@dataclass
class Load:
    """What became of the requests so far: each that was sent is in `answers` or in `failures`.

    `answers` holds what was answered and the seconds that it took, in the order of the answers;
    `failures` when a request was sent, on the clock of time.monotonic, and what happened. `missed`
    are those that were not sent, since as many as may be were waiting.
    """

    answers: list[tuple[dict[str, str], float]] = field(default_factory=list)
    failures: list[tuple[float, str]] = field(default_factory=list)
    missed: int = 0

    @property
    def done(self) -> int:
        return len(self.answers) + len(self.failures)

    def wait_for_more(self, count: int) -> None:
        """Waits until this many more requests are done."""
        goal = self.done + count
        wait_for(f"{count} requests", lambda: self.done >= goal, TIMEOUT_S + count / SLOWEST_RATE)

    def told(self) -> str:
        """A line for people: how many, how many failed, and how long they took."""
        took = sorted(seconds for _, seconds in self.answers)
        ms = [f"p{p} {1000 * took[len(took) * p // 100]:.0f} ms" for p in (50, 99)]
        kinds = Counter(text[:120] for _, text in self.failures).most_common(3)
        said = f"{self.done} requests, {self.missed} not sent, {len(self.failures)} failed"
        return f"{said}; {', '.join(ms)}; {kinds}"


@contextlib.contextmanager
def load(url: str, rate: float) -> Iterator[Load]:
    """Sends so many requests a second while the block runs, and waits for the last answers.

    No more than `MOST_AT_ONCE` wait for an answer; what came due meanwhile is not made up for.
    """
    seen, over = Load(), threading.Event()
    thread = threading.Thread(target=lambda: asyncio.run(_send(url, rate, seen, over)))
    thread.start()
    try:
        yield seen
    finally:
        over.set()
        thread.join()


async def _send(url: str, rate: float, seen: Load, over: threading.Event) -> None:
    timeout = aiohttp.ClientTimeout(total=TIMEOUT_S)
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(timeout=timeout, connector=connector) as session:
        running = set()
        due = time.monotonic()
        while not over.is_set():
            if len(running) < MOST_AT_ONCE:
                task = asyncio.create_task(_ask(session, url, seen))
                running.add(task)
                task.add_done_callback(running.discard)
            else:
                seen.missed += 1
            due = max(due + 1 / rate, time.monotonic())
            await asyncio.sleep(due - time.monotonic())
        await asyncio.gather(*running)


async def _ask(session: aiohttp.ClientSession, url: str, seen: Load) -> None:
    began = time.monotonic()
    try:
        async with session.get(url) as response:
            text = await response.text()
    except (aiohttp.ClientError, TimeoutError) as error:
        seen.failures.append((began, repr(error)))
        return
    if response.status == 200:
        seen.answers.append((json.loads(text), time.monotonic() - began))
    else:
        seen.failures.append((began, f"{response.status} {text[-200:]}"))
