"""The work of eviction.py, which runs on a node that is about to be evicted.

    python benchmarks/_evicted_work.py NODE FOLDER [SECONDS]

A driver on the cluster of RAY_ADDRESS. On the node it runs a retriable task of SECONDS (default 5)
and an actor that trains: each step adds to a state in its memory, which it saves when its node
drains, as Ray Train does with a checkpoint. The driver ends when both have resumed on another node.
It prints each event as one JSON object per line, with its `time`:

    running                      task and actor run on the node
    step     {n, node}           the actor has made its n-th step, on that node
    gone                         the node is no longer a member of the cluster
    task     {attempts}          the task has ended; the seconds that each attempt ran
    done     {lost_steps, gap_s} the steps that the actor repeated, and its pause; also step_s
"""

from __future__ import annotations

import json
import logging
import sys
import threading
import time
from pathlib import Path
from typing import Any

import ray
from ray._private import state as ray_state
from ray.exceptions import RayActorError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

STEP_S = 0.2
STEPS_AFTERWARDS = 5
POLL_S = 0.2
DEADLINE_S = 240.0


def work(log: str, seconds: float) -> None:
    """Work for this many seconds, and append a line to the log at each step."""
    attempt = time.time()
    while time.time() < attempt + seconds:
        with Path(log).open("a") as file:
            file.write(json.dumps([attempt, time.time()]) + "\n")
        time.sleep(STEP_S)


@ray.remote(num_cpus=1, max_restarts=1)
class Training:
    """Counts steps in memory; from when its node drains, it saves the count after each step."""

    def __init__(self, checkpoint: str) -> None:
        self._checkpoint = Path(checkpoint)
        self._node = ray.get_runtime_context().get_node_id()
        self._drains = False
        text = self._checkpoint.read_text() if self._checkpoint.exists() else "0"
        self._steps = int(text)

    def step(self) -> tuple[int, str]:
        """Make a step; return the number of steps so far and the ID of the node."""
        time.sleep(STEP_S)
        self._steps += 1
        # A node that has left the GCS drains no longer, while its workers may still make a step.
        self._drains = self._drains or self._node in ray_state.state.get_draining_nodes()
        if self._drains:
            new = self._checkpoint.with_suffix(".new")
            new.write_text(str(self._steps))
            new.replace(self._checkpoint)
        return self._steps, self._node


def report(event: str, **fields: Any) -> None:
    """Print an event as a JSON line."""
    line = json.dumps({"event": event, "time": time.time(), **fields})
    # One write, line end included, because three threads print.
    print(line + "\n", end="", flush=True)


def node_id(name: str) -> str:
    """Return the ID of the live node of that name.

    Raises:
        StopIteration: If there is none.
    """
    return next(n["NodeID"] for n in ray.nodes() if n["NodeName"] == name and n["Alive"])


def watch(node: str) -> None:
    """Report when the node has left the cluster."""
    while any(n["NodeID"] == node and n["Alive"] for n in ray.nodes()):
        time.sleep(POLL_S)
    report("gone")


def attempts(log: Path) -> list[float]:
    """Return the seconds that each attempt of the task has run, as far as its log shows."""
    ran: dict[float, float] = {}
    for line in log.read_text().splitlines():
        attempt, now = json.loads(line)
        ran[attempt] = round(now - attempt, 3)
    return list(ran.values())


def train_on(actor: Any, node: str) -> tuple[int, float]:
    """Make steps until some ran on another node; return the lost steps and the seconds between."""
    reached, last = 0, 0.0
    elsewhere, lost, gap = 0, 0, 0.0
    deadline = time.monotonic() + DEADLINE_S
    while elsewhere < STEPS_AFTERWARDS and time.monotonic() < deadline:
        try:
            n, where = ray.get(actor.step.remote(), timeout=DEADLINE_S)
        except RayActorError:
            time.sleep(POLL_S)
            continue
        now = time.time()
        report("step", n=n, node=where)
        if where != node:
            if not elsewhere:
                lost, gap = reached - (n - 1), now - last
            elsewhere += 1
        reached, last = n, now
    return lost, gap


def main(name: str, folder: Path, seconds: float) -> None:
    """Run the task and the actor on the node, and report what becomes of them."""
    ray.init(log_to_driver=False, logging_level=logging.ERROR)
    node = node_id(name)
    there: Any = NodeAffinitySchedulingStrategy(node, soft=True)
    log = folder / "task.log"
    actor: Any = Training.options(scheduling_strategy=there).remote(str(folder / "checkpoint"))
    ray.get(actor.step.remote())
    task: Any = ray.remote(num_cpus=1, max_retries=1, scheduling_strategy=there)(work)
    result = task.remote(str(log), seconds)
    while not log.exists():
        time.sleep(POLL_S)
    report("running")
    threading.Thread(target=watch, args=(node,), daemon=True).start()

    def wait_for_task() -> None:
        ray.get(result)
        report("task", attempts=attempts(log))

    waiting = threading.Thread(target=wait_for_task)
    waiting.start()
    lost, gap = train_on(actor, node)
    waiting.join()
    report("done", lost_steps=lost, step_s=STEP_S, gap_s=round(gap, 3))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), float(sys.argv[3]) if len(sys.argv) > 3 else 5.0)
