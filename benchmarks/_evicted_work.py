"""Work on a node that is about to go: `python benchmarks/_evicted_work.py NODE FOLDER [SECONDS]`

A driver on the cluster of RAY_ADDRESS. On the node it runs a retriable task of SECONDS (default 5)
and an actor that trains: each step adds to a state that lives in its memory, and it saves the state
when it sees that its node drains, as Ray Train does with a checkpoint. It ends when both have gone
on elsewhere. What happens goes to stdout, one JSON object a line, each with the `time`:

    running                      task and actor run on the node
    step     {n, node}           the actor has made its n-th step, on that node
    gone                         the node is no member of the cluster any more
    task     {attempts}          the task has its result; the seconds that each attempt ran
    done     {lost_steps, gap_s} what the actor did again, and how long it made no step; step_s
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
    """Works for so long; appends a line to the log as it goes."""
    attempt = time.time()
    while time.time() < attempt + seconds:
        with Path(log).open("a") as file:
            file.write(json.dumps([attempt, time.time()]) + "\n")
        time.sleep(STEP_S)


@ray.remote(num_cpus=1, max_restarts=1)
class Training:
    """Counts steps. The count is in memory; on a node that drains it is saved after each step."""

    def __init__(self, checkpoint: str) -> None:
        self._checkpoint = Path(checkpoint)
        self._node = ray.get_runtime_context().get_node_id()
        text = self._checkpoint.read_text() if self._checkpoint.exists() else "0"
        self._steps = int(text)

    def step(self) -> tuple[int, str]:
        time.sleep(STEP_S)
        self._steps += 1
        if self._node in ray_state.state.get_draining_nodes():
            new = self._checkpoint.with_suffix(".new")
            new.write_text(str(self._steps))
            new.replace(self._checkpoint)
        return self._steps, self._node


def tell(event: str, **fields: Any) -> None:
    line = json.dumps({"event": event, "time": time.time(), **fields})
    # In one write, end and all: three threads tell.
    print(line + "\n", end="", flush=True)


def node_id(name: str) -> str:
    """The id of the node of that name; StopIteration where there is none."""
    return next(n["NodeID"] for n in ray.nodes() if n["NodeName"] == name and n["Alive"])


def watch(node: str) -> None:
    """Tells when the node is gone."""
    while any(n["NodeID"] == node and n["Alive"] for n in ray.nodes()):
        time.sleep(POLL_S)
    tell("gone")


def attempts(log: Path) -> list[float]:
    """The seconds that each attempt of the task is known to have run."""
    ran: dict[float, float] = {}
    for line in log.read_text().splitlines():
        attempt, now = json.loads(line)
        ran[attempt] = round(now - attempt, 3)
    return list(ran.values())


def train_on(actor: Any, node: str) -> tuple[int, float]:
    """Steps until some were made elsewhere; returns what was lost and the longest pause."""
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
        tell("step", n=n, node=where)
        if where != node:
            if not elsewhere:
                lost, gap = reached - (n - 1), now - last
            elsewhere += 1
        reached, last = n, now
    return lost, gap


def main(name: str, folder: Path, seconds: float) -> None:
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
    tell("running")
    threading.Thread(target=watch, args=(node,), daemon=True).start()

    def wait_for_task() -> None:
        ray.get(result)
        tell("task", attempts=attempts(log))

    waiting = threading.Thread(target=wait_for_task)
    waiting.start()
    lost, gap = train_on(actor, node)
    waiting.join()
    tell("done", lost_steps=lost, step_s=STEP_S, gap_s=round(gap, 3))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), float(sys.argv[3]) if len(sys.argv) > 3 else 5.0)
