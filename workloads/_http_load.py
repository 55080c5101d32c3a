"""Sends requests to a server for some seconds and measures how long the answers take."""

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import aiohttp

TIMEOUT_S = 60.0


@dataclass
class Seen:
    """What became of the requests."""

    answers: list[dict[str, Any]] = field(default_factory=list)
    took: list[float] = field(default_factory=list)
    """The seconds of each answer, in the order of ``answers``."""
    failures: list[str] = field(default_factory=list)
    seconds: float = 0.0
    """From the first request to the last answer."""

    @property
    def rate(self) -> float:
        """The answers a second."""
        return len(self.answers) / self.seconds

    def percentile(self, share: float) -> float:
        """Return the seconds within which this share of the answers came; 0 without answers."""
        ordered = sorted(self.took)
        return ordered[min(len(ordered) - 1, int(len(ordered) * share))] if ordered else 0.0


def measure(
    url: str,
    bodies: Sequence[bytes],
    clients: int,
    seconds: float,
    progress: Callable[[Seen], None],
) -> Seen:
    """Return what became of the requests; each client waits for an answer before its next one.

    Args:
        url: Where they are sent.
        bodies: What is sent, in turn.
        clients: How many send at the same time.
        seconds: For how long new ones are sent.
        progress: Called now and then with what is known so far.
    """
    return asyncio.run(_measure(url, bodies, clients, seconds, progress))


async def _measure(
    url: str,
    bodies: Sequence[bytes],
    clients: int,
    seconds: float,
    progress: Callable[[Seen], None],
) -> Seen:
    seen, began = Seen(), time.perf_counter()
    connector = aiohttp.TCPConnector(limit=0)
    timeout = aiohttp.ClientTimeout(total=TIMEOUT_S)
    async with aiohttp.ClientSession(connector=connector, timeout=timeout) as session:

        async def client(number: int) -> None:
            while time.perf_counter() - began < seconds:
                await _ask(session, url, bodies[number % len(bodies)], seen)
                number += clients

        running = [asyncio.create_task(client(number)) for number in range(clients)]
        while (await asyncio.wait(running, timeout=0.5))[1]:
            progress(seen)
    seen.seconds = time.perf_counter() - began
    return seen


async def _ask(session: aiohttp.ClientSession, url: str, body: bytes, seen: Seen) -> None:
    began = time.perf_counter()
    try:
        async with session.post(url, data=body) as response:
            if response.status == 200:
                seen.answers.append(await response.json())
                seen.took.append(time.perf_counter() - began)
            else:
                seen.failures.append(f"{response.status} {(await response.text())[:200]}")
    except (aiohttp.ClientError, TimeoutError) as error:
        seen.failures.append(repr(error))
