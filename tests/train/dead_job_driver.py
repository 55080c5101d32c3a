"""The drivers of test_vanished.py's dead job.

`killed` has an actor that makes placement groups until it dies with its job, and a detached one
that holds a group; it prints "ready" and waits to be killed. `look` waits until that job is dead,
lets remove_groups_of_dead_jobs work, and prints the states of all groups before and after.
"""

from __future__ import annotations

import itertools
import json
import logging
import sys
import time
from typing import Any

import _vanished  # pyright: ignore[reportMissingImports]
import ray
from ray._private.state import state
from ray.util import placement_group, placement_group_table

HELD, LEFT = "held", "left"
DEADLINE_S, POLL_S = 240.0, 0.1


class Maker:
    def hold(self) -> None:
        ray.get(placement_group([{"CPU": 0.01}], name=HELD).ready())

    def make(self) -> None:
        for number in itertools.count():
            placement_group([{"CPU": 0.001}], name=f"{LEFT}-{number}")
            time.sleep(0.002)


def killed() -> None:
    actor: Any = ray.remote(num_cpus=0)(Maker)
    holder = actor.options(name=HELD, lifetime="detached").remote()
    ray.get(holder.hold.remote())
    actor.remote().make.remote()
    while f"{LEFT}-0" not in states():
        time.sleep(POLL_S)
    print("ready", flush=True)
    sys.stdin.read()


def look() -> None:
    deadline, own = time.monotonic() + DEADLINE_S, ray.get_runtime_context().get_job_id()
    while any(
        not job["IsDead"] and job["JobID"] != own and "dead_job_driver" in job["Entrypoint"]
        for job in state.job_table()
    ):
        assert time.monotonic() < deadline
        time.sleep(POLL_S)
    before = states()
    _vanished.remove_groups_of_dead_jobs()
    print(json.dumps({"before": before, "after": states()}), flush=True)
    ray.kill(ray.get_actor(HELD))


def states() -> dict[str, str]:
    return {group["name"]: group["state"] for group in placement_group_table().values()}


if __name__ == "__main__":
    ray.init(namespace=HELD, logging_level=logging.ERROR, log_to_driver=False)
    {"killed": killed, "look": look}[sys.argv[1]]()
