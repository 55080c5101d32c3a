"""A day in the life of a cluster on Azure, sped up: jobs that come and go, evictions, no spot.

The head and the workers are real Ray nodes; Azure Resource Manager is the stand-in, whose machines
"boot" by starting a node (ray_machines.py). An eviction is the watcher of a VM with a short notice,
after which the machine is taken away, whatever runs on it.
"""

from __future__ import annotations

import contextlib
import json
import secrets
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from azure_model.arm import HEAD, Vm, serving
from azure_model.compute import Billed
from ray_machines import RayMachines, autoscaler_file
from waiting import wait_for

from sunspot.node.azure.eviction import Timing, Watcher
from sunspot.node.azure.record import HeadRecord
from sunspot.node.events import Event
from sunspot.node.free_ports import free_port
from sunspot.node.leaving import Marks, Worker
from sunspot.node.local.eviction import OneNotice
from sunspot.node.metrics import EventLog
from sunspot.node.notices import Notice
from sunspot.stack import Stack
from sunspot.targets.azure import plan as azure_plan

KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f x"
GROUP = "spotty"
STACK = Stack.parse(
    {
        "azure-native:location": "uksouth",
        "sunspot:access": {"ssh_public_key": KEY},
        "sunspot:cluster": {
            "head_node": {"vm_size": "Standard_D2s_v5"},
            "autoscaler_config": {"cpu": 0.5, "memory_gb": 1},
            "scaling_groups": [
                {
                    "name": GROUP,
                    "market": "spot-with-fallback",
                    "min_workers": 0,
                    "max_workers": 3,
                    "worker_nodes": {"vm_size": "Standard_D2s_v5"},
                }
            ],
        },
    },
    name="test",
)

# When, how many tasks, the seconds and the CPUs of each.
WORK = ((0, 4, 6, 1), (15, 2, 15, 2), (35, 6, 5, 1), (60, 6, 6, 1), (80, 3, 4, 2))
EVICTION_EVERY_S = 18.0
NOTICE_S = 3.0
# From then on Azure has no spot machine: the group falls back to on-demand ones.
NO_SPOT_S = 55.0
DEADLINE_S = 400.0

# Prints of each task: its result, its machine's kind, and when it was asked for, began and ended.
DRIVER = """
import json, os, sys, time, ray
ray.init(address=os.environ["RAY_ADDRESS"], log_to_driver=False, logging_level="ERROR")
@ray.remote(max_retries=-1)
def square(number, asked, seconds):
    began = time.time()
    time.sleep(seconds)
    return number * number, os.environ["RAY_NODE_TYPE_NAME"], asked, began, time.time()
@ray.remote(num_cpus=0, max_restarts=-1, max_task_retries=-1)
class Sum:
    def of(self, numbers):
        return sum(numbers)
began, results, number = time.time(), [], 0
for at, tasks, seconds, cpus in json.loads(sys.argv[1]):
    time.sleep(max(0.0, began + at - time.time()))
    for _ in range(tasks):
        results.append(square.options(num_cpus=cpus).remote(number, time.time(), seconds))
        number += 1
done = ray.get(results)
total = ray.get(Sum.remote().of.remote([one[0] for one in done]))
print(json.dumps([total, done]))
"""


@dataclass(frozen=True)
class Task:
    """One task: its result, the kind of its machine, and when it was asked for, began, ended."""

    result: int
    kind: str
    asked: float
    began: float
    ended: float


@dataclass(frozen=True, kw_only=True)
class Day:
    """What a day was like.

    Attributes:
        tasks: all tasks, in the order in which they were asked for.
        total: the sum of their results, by an actor.
        events: the cluster's record.
        notices: what the head said while there was no spot.
        evicted: the machines that were evicted, in order.
        billed: each machine's time, as the stand-in saw it.
        left: the machines that are left at the end.
    """

    tasks: Sequence[Task]
    total: int
    events: Sequence[Event]
    notices: Sequence[Notice]
    evicted: Sequence[str]
    billed: dict[str, Billed]
    left: Sequence[str]


@dataclass
class Cluster(RayMachines):
    """The head's cluster, and the processes that stand for its machines."""

    evicted: list[str] = field(default_factory=list)

    @property
    def record(self) -> HeadRecord:
        return HeadRecord(self.folder / "record")

    def boot(self, vm: Vm) -> None:
        assert vm.scale_set is not None
        self.start_worker(vm.name, vm.scale_set.removeprefix("sunspot-test-"))

    def joined(self) -> list[str]:
        """The spot machines that have joined and are there."""
        events = self.record.events.read()
        return [
            event.node
            for event in events
            if event.kind == "joined" and event.group == GROUP
            if event.node in self.arm.vms and event.node not in self.evicted
        ]

    def evict(self, name: str) -> None:
        """A notice, a drain, and then the machine is gone."""
        self.evicted.append(name)
        ends = time.time() + NOTICE_S
        notice = OneNotice(name, ends)
        watcher = Watcher(
            name=name,
            group=GROUP,
            imds=notice,
            node=Worker(self.address, name),
            marks=Marks(None),
            report=EventLog(self.address).write,
            timing=Timing(poll_s=0.2, margin_s=0.5),
        )
        while not notice.acknowledged and time.time() < ends:
            time.sleep(min(watcher.turn(), max(0.0, ends - time.time())))
        if vm := self.arm.vms.get(name):
            self.arm.evict(vm)

    def evict_now_and_then(self, over: threading.Event) -> None:
        """Evicts the machine that joined first, again and again, until the work is over."""
        while not over.wait(EVICTION_EVERY_S):
            if here := self.joined():
                self.evict(here[0])


@contextlib.contextmanager
def cluster() -> Iterator[Cluster]:
    """A head without CPUs and its stand-in for Azure, until the block ends."""
    # A short path: Ray puts sockets below it, whose paths may have 107 bytes.
    folder = Path(tempfile.mkdtemp(prefix="sunspot-day-", dir="/tmp"))
    (folder / "token").write_text(secrets.token_hex(16))
    with serving() as arm:
        made = Cluster(arm, folder, f"127.0.0.1:{free_port(set())}", folder / "token")
        arm.on_boot, arm.on_delete = made.boot, made.delete
        plan = azure_plan.plan(STACK, Path.cwd())
        config = folder / "config.yaml"
        made.record.folder.mkdir(mode=0o700)
        autoscaler_file(plan, arm, config, record=str(made.record.folder), gcs=made.address)
        try:
            made.start_head(HEAD, config, "--num-cpus=0", "--include-dashboard=false")
            wait_for("the head", lambda: (folder / "r").exists(), DEADLINE_S)
            yield made
        finally:
            for name in list(made.machines):
                made.delete(name)
            shutil.rmtree(folder, ignore_errors=True)


def live(made: Cluster) -> Day:
    """Lives the day; returns when the work is done and every machine was given back."""
    over = threading.Event()
    evictions = threading.Thread(target=made.evict_now_and_then, args=[over])
    no_spot = threading.Timer(NO_SPOT_S, _refuse_spot, [made])
    driver = subprocess.Popen(
        [sys.executable, "-c", DRIVER, json.dumps(WORK)],
        env=made.environment("driver", "driver"),
        cwd=made.folder,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        evictions.start()
        no_spot.start()
        printed, _ = driver.communicate(timeout=DEADLINE_S)
        notices = made.record.notices.read()
    finally:
        over.set()
        no_spot.cancel()
        driver.kill()
        driver.wait()
        evictions.join()
    total, done = _read(printed, made)
    wait_for("the idle machines to go", lambda: made.arm.vms.keys() == {HEAD}, DEADLINE_S)
    _see_the_end(made)
    return Day(
        tasks=[Task(*one) for one in done],
        total=total,
        events=made.record.events.read(),
        notices=notices,
        evicted=made.evicted,
        billed=made.arm.billed,
        left=[name for name in made.arm.vms if name != HEAD],
    )


def _refuse_spot(made: Cluster) -> None:
    refusal = (202, "AllocationFailed", "no spot capacity")
    made.arm.refusals[f"sunspot-test-{GROUP}"] = [refusal] * 1000


def _read(printed: str, made: Cluster) -> tuple[int, list[Any]]:
    assert printed, made.logs()
    total, done = json.loads(printed.splitlines()[-1])
    return total, done


def _see_the_end(made: Cluster) -> None:
    """Waits until the record has the end of each machine."""
    ends = {"drained", "evicted", "lost", "gave-up"}

    def all_ended() -> bool:
        events = made.record.events.read()
        launched = {event.node for event in events if event.kind == "launched"}
        return launched <= {event.node for event in events if event.kind in ends}

    wait_for("the ends in the record", all_ended, DEADLINE_S)
