"""What the workloads share: arguments, the connection to Ray, progress and the result file.

The workloads import it as a sibling, because Python puts a script's own folder on the path. A
worker on another machine does not have that folder, so the code that runs there is sent with the
task.
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
PROGRESS_EVERY = 2.0  # seconds between lines when the output is not a terminal

Place = tuple[str, int]
"""The node id and the process id of a worker."""


# Arguments


class _Help(argparse.RawDescriptionHelpFormatter):
    """Shows the default of each option whose help does not."""

    def _get_help_string(self, action: argparse.Action) -> str:
        text = action.help or ""
        default = action.default
        shown = default is None or default is False or "default" in text
        return text if shown or default == argparse.SUPPRESS else f"{text} (default: %(default)s)"


def parser(description: str | None, example: str) -> argparse.ArgumentParser:
    """Return a parser whose ``--help`` ends with an example and that knows ``--out``."""
    made = argparse.ArgumentParser(
        description=(description or "").partition("\n\n")[0],
        epilog=f"example:\n  {example}",
        formatter_class=_Help,
        allow_abbrev=False,
    )
    made.add_argument("--out", type=writable, metavar="FILE", help="write the result as JSON")
    return made


def add_run_options(made: argparse.ArgumentParser) -> None:
    """Add the options of a run of Ray Train: its storage, and the resources of a worker."""
    storage = "folder, s3:// or abfs:// (default: the stack's storage)"
    made.add_argument("--storage", metavar="URL", help=storage)
    cpus, gpus = "CPUs per worker", "GPUs per worker, such as 0.5"
    made.add_argument(
        "--cpus-per-worker", type=share_above_none, default=1.0, metavar="X", help=cpus
    )
    made.add_argument("--gpus-per-worker", type=share, default=0.0, metavar="X", help=gpus)


def positive(text: str) -> int:
    """Return a whole number of at least 1, for argparse."""
    return _at_least(1, text)


def natural(text: str) -> int:
    """Return a whole number of at least 0, for argparse."""
    return _at_least(0, text)


def share(text: str) -> float:
    """Return a fraction of one CPU or GPU, or a whole number of them, as Ray allocates them."""
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
        raise argparse.ArgumentTypeError(f"{text!r}: the maximum is below the minimum")
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
    # Refused now, so that the user does not learn it only after the work is done.
    path = Path(text)
    if path.is_dir() or not path.absolute().parent.is_dir():
        raise argparse.ArgumentTypeError(f"{text!r} is not a file in a folder that exists")
    if not os.access(path if path.exists() else path.absolute().parent, os.W_OK):
        raise argparse.ArgumentTypeError(f"{text!r} cannot be written")
    return path


# The cluster


def connect(*, tell_workers: bool = False) -> int:
    """Return the number of CPUs of the cluster at RAY_ADDRESS, or of a new one on this machine.

    Args:
        tell_workers: Whether to put RAY_ADDRESS into every worker's environment. Without it, Ray's
            state API inside a worker uses any cluster that runs on the machine, and fails if
            there are two.
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
    """Start a worker process for each CPU.

    Ray starts a Python process for a CPU when the first task needs it, which takes about a second.
    It happens once per worker, so it should not count in the time of the work.
    """
    touch = ray.remote(num_cpus=1)(_touch).options(name="warm-up", scheduling_strategy="SPREAD")
    deadline = time.monotonic() + WARM_UP_LIMIT
    warm: set[Place] = set()
    while len(warm) < cpus and time.monotonic() < deadline:
        warm.update(follow([touch.remote() for _ in range(cpus)], "workers started"))


def _touch() -> Place:
    # A task that ended at once would leave its worker free for the next one, and Ray would not
    # start the other workers.
    time.sleep(0.02)
    return here()


def on_this_node() -> Any:
    """Return a scheduling strategy that puts an actor beside the driver.

    An actor's state is lost with its node, for instance when a spot VM is evicted. The loss of the
    driver's node ends the program anyway.
    """
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    return NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=True)


def one_worker_seconds(work: Callable[..., Any], calls: Sequence[tuple[Any, ...]]) -> float:
    """Return the seconds that all the calls take one after the other in a single worker.

    Each is timed inside the worker, so neither the process's start nor Ray's messages count.
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
    """Print a line and flush it, so that it appears at once in a pipe too."""
    print(text, flush=True)


class Progress:
    """Shows how far the work is: one line that changes on a terminal, otherwise a line every 2 s.

    Nothing is printed into a pipe in the first two seconds.
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
        """Show the text with the elapsed seconds, if a line is due."""
        now = time.monotonic()
        text = f"  {text}, {now - self._began:.0f} s"
        if self._terminal:
            print(f"\r\x1b[2K{text}", end="", flush=True)
        elif now >= self._next:
            say(text)
            self._next = now + PROGRESS_EVERY


def follow(refs: Sequence[Any], what: str) -> list[Any]:
    """Return the tasks' results in order; show how many are ready meanwhile."""
    with Progress() as progress:
        waiting = list(refs)
        while waiting:
            # Wait for all that are left, not for one at a time: each call takes time from the work.
            _, waiting = ray.wait(waiting, num_returns=len(waiting), timeout=0.5)
            progress.show(f"{len(refs) - len(waiting)} of {len(refs)} {what}")
        return ray.get(list(refs))


# The result


@dataclass(frozen=True, kw_only=True)
class Result:
    """What a workload did: the fields that all workloads have."""

    workload: str
    places: Sequence[Place]
    """Where each task ran."""
    seconds: float
    """The distributed part only, without ``ray.init`` and the warm-up."""
    summary: str
    one_worker_seconds: float | None = None

    def report(self, out: Path | None, **own: Any) -> None:
        """Print the summary and, if asked, write everything to a file.

        Args:
            out: The JSON file to write, or None.
            own: The keys that only this workload has.
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

    Ray's list of nodes keeps those that have died, so tasks on an evicted node count too.
    """
    nodes = {node["NodeID"]: node for node in ray.nodes()}
    found = {}
    for node_id, tasks in sorted(Counter(node for node, _ in places).items()):
        node = nodes.get(node_id, {})
        labels = node.get("Labels") or {}
        name, address = node.get("NodeName"), node.get("NodeManagerAddress")
        found[node_id] = {
            # Ray names a node by its address unless it is given a name; nodes may share an address.
            "name": name if name and name != address else node_id[:8],
            "group": labels.get("ray.io/node-group"),
            "market": labels.get("ray.io/market-type"),
            "ip": address,
            "tasks": tasks,
        }
    return found


def refuse(message: str) -> NoReturn:
    """End the program with an error about its input and exit code 2."""
    print(f"error: {message}", file=sys.stderr, flush=True)
    sys.exit(2)


def program(main: Callable[[list[str] | None], None]) -> Callable[..., None]:
    """Return the main function such that Ctrl-C ends it with exit code 130 and no traceback."""

    @functools.wraps(main)
    def run(argv: list[str] | None = None) -> None:
        try:
            main(argv)
        except KeyboardInterrupt:
            sys.exit(130)

    return run
