"""Runs jobs of several kinds on a cluster, as a driver does: `python mixed_jobs.py`

Each line of its input is a job, such as {"id": "1", "kind": "squares", "count": 2}; jobs run at the
same time. For each it prints {"id": ..., "result": ...}, or {"id": ..., "error": ...}. When the
input ends it waits for the jobs, and exits with 1 if one failed.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import ray
from ray.util.placement_group import placement_group, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

PURPOSE = "this job fails on purpose"


@ray.remote(num_cpus=1)
def where() -> tuple[str, str]:
    """The node type and the machine that it runs on."""
    return os.environ["RAY_NODE_TYPE_NAME"], os.environ["RAY_CLOUD_INSTANCE_ID"]


@ray.remote(num_cpus=1)
def square(number: int, seconds: float) -> int:
    time.sleep(seconds)
    return number * number


@ray.remote(num_cpus=1)
def fail() -> None:
    raise ValueError(PURPOSE)


@ray.remote(num_cpus=1, max_restarts=-1, max_task_retries=-1)
class Counter:
    """Counts, and keeps what it has counted in a file: on another machine it goes on from there."""

    def __init__(self, file: str) -> None:
        self._file = Path(file)

    def count(self, step: int, seconds: float) -> int:
        """Counts a step, once however often it is asked; returns how many there are."""
        time.sleep(seconds)
        done = set(json.loads(self._file.read_text())) if self._file.exists() else set()
        new = self._file.with_suffix(".new")
        new.write_text(json.dumps(sorted(done | {step})))
        new.replace(self._file)
        return len(done | {step})


def places(count: int) -> list[tuple[str, str]]:
    """Where each of so many tasks ran."""
    return ray.get([where.remote() for _ in range(count)])


def spread(count: int) -> list[tuple[str, str]]:
    """The same for tasks of which each has a machine of its own."""
    group = placement_group([{"CPU": 2}] * count, strategy="STRICT_SPREAD")
    ray.get(group.ready())
    try:
        on = [PlacementGroupSchedulingStrategy(group, index) for index in range(count)]
        return ray.get([where.options(scheduling_strategy=one).remote() for one in on])
    finally:
        remove_placement_group(group)


def squares(count: int, seconds: float) -> int:
    """The sum of the squares of 0 to count - 1, each computed by a task of so many seconds."""
    return sum(ray.get([square.remote(number, seconds) for number in range(count)]))


def counter(file: str, steps: int, seconds: float) -> Any:
    """How many of the steps an actor has counted at the last one."""
    actor: Any = Counter.remote(file)  # pyright: ignore[reportAttributeAccessIssue] - Ray's
    counted = 0
    for step in range(steps):
        counted = ray.get(actor.count.remote(step, seconds))
    return counted


def fails() -> None:
    """Fails."""
    ray.get(fail.remote())


KINDS: Mapping[str, Callable[..., Any]] = {
    made.__name__: made for made in (places, spread, squares, counter, fails)
}


class Jobs:
    """The jobs that were begun, and what became of them."""

    def __init__(self) -> None:
        self._threads: list[threading.Thread] = []
        self.failed = False

    def begin(self, job: dict[str, Any]) -> None:
        thread = threading.Thread(target=self._run, kwargs=job)
        self._threads.append(thread)
        thread.start()

    def wait(self) -> None:
        for thread in self._threads:
            thread.join()

    def _run(self, id: str, kind: str, **arguments: Any) -> None:  # noqa: A002 - its name there
        try:
            told = {"id": id, "result": KINDS[kind](**arguments)}
        except Exception as error:  # whatever it is, the test wants to know
            self.failed = True
            told = {"id": id, "error": str(error)}
        print(json.dumps(told), flush=True)


def main() -> int:
    """Runs the jobs of the input; 1 if one failed."""
    ray.init(address=os.environ["RAY_ADDRESS"], log_to_driver=False)
    jobs = Jobs()
    for line in sys.stdin:
        jobs.begin(json.loads(line))
    jobs.wait()
    return int(jobs.failed)


if __name__ == "__main__":
    sys.exit(main())
