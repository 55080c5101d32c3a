"""What every workload shares: its arguments, its cluster, its progress and its result file.

The workloads import it as a sibling, because Python puts a script's own folder on the path. A
worker on another machine has no such folder, so what runs there travels inside the task itself.
"""

import argparse
import functools
import json
import logging
import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import ray
from ray import cloudpickle

cloudpickle.register_pickle_by_value(sys.modules[__name__])

WARM_UP_LIMIT = 10.0  # seconds; a CPU that another job holds for longer stays cold
PROGRESS_EVERY = 2.0  # seconds between lines where the output is not a terminal

Place = tuple[str, int]
"""The node id and the process id of a worker."""


# Arguments


def parser(description: str | None, example: str) -> argparse.ArgumentParser:
    """Return a parser whose ``--help`` ends with an example and that knows ``--out``."""
    made = argparse.ArgumentParser(
        description=(description or "").partition("\n\n")[0],
        epilog=f"example:\n  {example}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    made.add_argument("--out", type=writable, metavar="FILE", help="write the result as JSON")
    return made


def positive(text: str) -> int:
    """Return a whole number of at least 1, for argparse."""
    return _at_least(1, text)


def natural(text: str) -> int:
    """Return a whole number of at least 0, for argparse."""
    return _at_least(0, text)


def share(text: str) -> float:
    """Return a part of one CPU or GPU, or a whole number of them, as Ray gives them out."""
    try:
        number = float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number") from None
    if not 0 <= number < float("inf") or (number > 1 and number % 1):
        raise argparse.ArgumentTypeError(f"{text} is neither below 1 nor a whole number")
    return number


def share_above_none(text: str) -> float:
    """Return a share that is not 0, for argparse."""
    if not (number := share(text)):
        raise argparse.ArgumentTypeError("0 is not above 0")
    return number


def span(text: str) -> tuple[int, int]:
    """Return "2" as (2, 2) and "1:4" as (1, 4), for argparse."""
    few, _, many = text.partition(":")
    found = positive(few), positive(many or few)
    if found[1] < found[0]:
        raise argparse.ArgumentTypeError(f"{text!r}: the most is below the least")
    return found


def folder_name(text: str) -> str:
    """Return the name of one folder, for argparse."""
    if not text or "/" in text or text.startswith("."):
        raise argparse.ArgumentTypeError(f"{text!r} cannot be the name of a folder")
    return text


def _at_least(least: int, text: str) -> int:
    try:
        number = int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number") from None
    if number < least:
        raise argparse.ArgumentTypeError(f"{number} is less than {least}")
    return number


def writable(text: str) -> Path:
    """Return the path of a file that can be written, for argparse."""
    # Refused here, because the other end of the work is a bad time to learn it.
    path = Path(text)
    if path.is_dir() or not path.absolute().parent.is_dir():
        raise argparse.ArgumentTypeError(f"{text!r} is not a file in a folder that exists")
    if not os.access(path if path.exists() else path.absolute().parent, os.W_OK):
        raise argparse.ArgumentTypeError(f"{text!r} cannot be written")
    return path


# The cluster


def connect(*, tell_workers: bool = False) -> int:
    """Return the number of CPUs of the cluster at RAY_ADDRESS, or of a new one on this machine.

    ``tell_workers`` puts RAY_ADDRESS into every worker's environment. Ray's state API, asked
    from inside a worker, otherwise takes any Ray that runs on the machine, or fails for two.
    """
    address = os.environ.get("RAY_ADDRESS")
    say(f"Connecting to Ray at {address}" if address else "Looking for Ray on this machine")
    try:
        env = {"env_vars": {"RAY_ADDRESS": address}} if tell_workers and address else None
        ray.init(logging_level=logging.WARNING, runtime_env=env)
    except (ConnectionError, RuntimeError, ValueError) as error:
        sys.exit(f"No Ray cluster: {error}")
    return max(1, int(ray.cluster_resources().get("CPU", 0)))


def here() -> Place:
    """Return where the task that calls this runs."""
    return ray.get_runtime_context().get_node_id(), os.getpid()


def warm_up(cpus: int) -> None:
    """Leave a started worker process behind each CPU.

    Ray starts a Python process for a CPU when the first task needs it, in about a second. That is
    paid once for each worker, so it would say nothing about the work that is timed.
    """
    touch = ray.remote(num_cpus=1)(_touch).options(name="warm-up", scheduling_strategy="SPREAD")
    deadline = time.monotonic() + WARM_UP_LIMIT
    warm: set[Place] = set()
    while len(warm) < cpus and time.monotonic() < deadline:
        warm.update(follow([touch.remote() for _ in range(cpus)], "workers started"))


def _touch() -> Place:
    # Held for a moment: a task that ends at once leaves its worker free for the next one, and
    # the other workers would never be started.
    time.sleep(0.02)
    return here()


def on_this_node() -> Any:
    """Return a scheduling strategy that puts an actor beside the driver.

    A spot machine may vanish with what an actor holds. The driver's node is the one whose loss
    ends the program anyway.
    """
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    return NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=True)


def one_worker_seconds(work: Callable[..., Any], calls: Sequence[tuple[Any, ...]]) -> float:
    """Return the seconds that all the calls take one after the other in a single worker.

    Each is timed inside the worker: neither the start of its process nor Ray's messages count.
    """
    actor: Any = ray.remote(num_cpus=1)(_OneWorker).remote(work)
    try:
        return sum(follow([actor.seconds.remote(call) for call in calls], "parts by one worker"))
    finally:
        ray.kill(actor)


class _OneWorker:
    def __init__(self, work: Callable[..., Any]) -> None:
        self._work = work

    def seconds(self, call: tuple[Any, ...]) -> float:
        began = time.perf_counter()
        self._work(*call)
        return time.perf_counter() - began


# Progress


def say(text: str) -> None:
    """Print a line now, also into a pipe."""
    print(text, flush=True)


class Progress:
    """A line that tells how far the work is: one that changes on a terminal, else one now and then.

    Nothing is printed into a pipe before two seconds have passed.
    """

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._next = self._began + PROGRESS_EVERY
        self._terminal = sys.stdout.isatty()

    def __enter__(self) -> "Progress":
        return self

    def __exit__(self, *_: object) -> None:
        if self._terminal:
            print("\r\x1b[2K", end="", flush=True)

    def show(self, text: str) -> None:
        """Show the text with the seconds so far, if it is time to."""
        now = time.monotonic()
        text = f"  {text}, {now - self._began:.0f} s"
        if self._terminal:
            print(f"\r\x1b[2K{text}", end="", flush=True)
        elif now >= self._next:
            say(text)
            self._next = now + PROGRESS_EVERY


def follow(refs: Sequence[Any], what: str) -> list[Any]:
    """Return the results of the tasks in their order, showing how many are there."""
    with Progress() as progress:
        waiting = list(refs)
        while waiting:
            # All that is left, not one at a time: each call costs time that is then not the work's.
            _, waiting = ray.wait(waiting, num_returns=len(waiting), timeout=0.5)
            progress.show(f"{len(refs) - len(waiting)} of {len(refs)} {what}")
        return ray.get(list(refs))


# The result


@dataclass(frozen=True, kw_only=True)
class Result:
    """What a workload did: the part that all of them have in common."""

    workload: str
    places: Sequence[Place]
    """Where each task ran."""
    seconds: float
    """The distributed part alone: no ``ray.init``, no warm-up."""
    summary: str
    one_worker_seconds: float | None = None

    def tell(self, out: Path | None, **own: Any) -> None:
        """Print the summary and, if asked, write everything to a file.

        ``own`` holds the keys that only this workload has.
        """
        nodes, workers = len({node for node, _ in self.places}), len(set(self.places))
        line = (
            f"{self.summary} ({count(len(self.places), 'task')}, {count(workers, 'worker')}, "
            f"{count(nodes, 'node')}, {self.seconds:.2f} s)"
        )
        say(line)
        if self.one_worker_seconds is not None:
            say(f"The same work in one worker: {self.one_worker_seconds:.2f} s")
        if out is None:
            return
        common = {
            "workload": self.workload,
            "tasks": len(self.places),
            "nodes": nodes,
            "workers": workers,
            "seconds": self.seconds,
            "one_worker_seconds": self.one_worker_seconds,
            "summary": line,
            "by_node": by_node(self.places),
        }
        out.write_text(json.dumps(common | own, indent=2) + "\n")
        say(f"Written to {out}")


def count(number: int, thing: str) -> str:
    """Return "1 task" or "2 tasks"."""
    return f"{number:,} {thing}" if number == 1 else f"{number:,} {thing}s"


def by_node(places: Iterable[Place]) -> dict[str, dict[str, Any]]:
    """Return each used node's group, market, address and number of tasks.

    The cluster's list keeps the nodes that have died, so tasks of an evicted machine count too.
    """
    nodes = {node["NodeID"]: node for node in ray.nodes()}
    found = {}
    for node_id, tasks in sorted(Counter(node for node, _ in places).items()):
        node = nodes.get(node_id, {})
        labels = node.get("Labels") or {}
        name, address = node.get("NodeName"), node.get("NodeManagerAddress")
        found[node_id] = {
            # Without a name of its own, Ray calls a node by its address, as it may call others.
            "name": name if name and name != address else node_id[:8],
            "group": labels.get("ray.io/node-group"),
            "market": labels.get("ray.io/market-type"),
            "ip": address,
            "tasks": tasks,
        }
    return found


def refuse(message: str) -> NoReturn:
    """End the program for what is wrong with its input."""
    print(f"error: {message}", file=sys.stderr, flush=True)
    sys.exit(2)


def program(main: Callable[[list[str] | None], None]) -> Callable[..., None]:
    """Return the main function so that Ctrl-C ends it without a traceback."""

    @functools.wraps(main)
    def run(argv: list[str] | None = None) -> None:
        try:
            main(argv)
        except KeyboardInterrupt:
            sys.exit(130)

    return run
