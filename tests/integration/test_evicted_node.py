"""A node of a real cluster is evicted: with the watcher nothing is lost, without it work is."""

from __future__ import annotations

import contextlib
import json
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests
from azure_model.imds import FakeAzure, serving
from harness import Sunspot, kill_node
from sunspot_command import DEADLINE_S
from waiting import wait_for

from sunspot.node.free_ports import free_port
from sunspot.ray.handle import ClusterHandle

REPOSITORY = Path(__file__).parents[2]
WORK = REPOSITORY / "benchmarks" / "_evicted_work.py"
STACK = "evicted"
# Of the notice, the drain has 15 s; the rest is for a watcher that is late on a busy machine.
NOTICE_S, MARGIN_S = 35.0, 20.0
TASK_S = 4.0
# Long enough that its node is killed while it runs.
KILLED_TASK_S = 20.0

# -1: a step was done of which the driver did not know, since its answer left the node too late.
NONE_LOST = {0, -1}

NOTICES = 'sunspot_eviction_notices_total{group="spot",type="Preempt"}'
DRAINS = 'sunspot_eviction_drains_total{group="spot",outcome="deadline"}'
DRAIN_SECONDS = 'sunspot_eviction_drain_seconds_total{group="spot"}'

CLUSTER = {
    "head_node": {"cpu": 1, "memory_gb": 2},
    "scaling_groups": [
        {
            "name": "spot",
            "market": "spot",
            "min_workers": 2,
            "max_workers": 2,
            "worker_nodes": {"cpu": 2, "memory_gb": 2},
        }
    ],
}


class Lines:
    """What a program prints, as JSON objects, while it runs."""

    def __init__(self, process: subprocess.Popen[str], errors: Path) -> None:
        self._process = process
        self._errors = errors
        self._lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self.seen: list[dict[str, Any]] = []
        threading.Thread(target=self._read, daemon=True).start()

    def until(self, event: str) -> dict[str, Any]:
        """The next event of that name; fails when the program ends or is silent for long."""
        while True:
            line = self._lines.get(timeout=2 * DEADLINE_S)
            if line is None:
                errors = self._errors.read_text()[-2000:]
                pytest.fail(f"the work ended before {event!r}: {self.seen[-3:]} {errors}")
            self.seen.append(json.loads(line))
            if self.seen[-1]["event"] == event:
                return self.seen[-1]

    def of(self, event: str) -> dict[str, Any]:
        return next(line for line in self.seen if line["event"] == event)

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("{"):  # Ray prints there as well
                self._lines.put(line)
        self._lines.put(None)


@pytest.fixture(scope="module")
def cluster(sunspot: Sunspot) -> Iterator[ClusterHandle]:
    sunspot.write_stack(STACK, CLUSTER)
    sunspot.ok("up", STACK)
    yield sunspot.target.handle(STACK)
    sunspot.ok("down", STACK)


@pytest.fixture
def environment(sunspot: Sunspot, cluster: ClusterHandle) -> dict[str, str]:
    return sunspot.environment() | {
        "RAY_ADDRESS": cluster.head_address,
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN_PATH": str(sunspot.folder(STACK).token),
    }


@contextlib.contextmanager
def running(command: list[str], environment: dict[str, str], **more: Any) -> Iterator[Any]:
    """The program, ended with the block."""
    with subprocess.Popen(command, env=environment, text=True, **more) as process:
        try:
            yield process
        finally:
            process.kill()


def watcher(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "sunspot.node.azure.eviction", *arguments]


@contextlib.contextmanager
def work(
    node: str, folder: Path, environment: dict[str, str], *, seconds: float = TASK_S
) -> Iterator[Lines]:
    """The driver, once its task of so many seconds and its actor run on the node."""
    command = [sys.executable, str(WORK), node, str(folder), str(seconds)]
    errors = folder / "stderr"
    with (
        errors.open("w") as stderr,
        running(command, environment, stdout=subprocess.PIPE, stderr=stderr) as driver,
    ):
        lines = Lines(driver, errors)
        lines.until("running")
        lines.until("step")
        yield lines


def members(environment: dict[str, str]) -> set[str]:
    """The names of the nodes that the GCS knows as alive."""
    code = (
        "import os; from sunspot.node import gcs; "
        "print(*gcs.alive_nodes(gcs.connect(os.environ['RAY_ADDRESS'])))"
    )
    command = [sys.executable, "-c", code]
    asked = subprocess.run(command, env=environment, text=True, capture_output=True, check=True)
    return set(asked.stdout.split())


def a_worker(environment: dict[str, str]) -> str:
    """A worker, once there are two: an earlier test's is being replaced."""

    def two() -> list[str]:
        workers = sorted(members(environment) - {"head"})
        return workers if len(workers) >= 2 else []

    return wait_for("two workers", two, 2 * DEADLINE_S)[-1]


def test_a_preempted_node_loses_nothing(environment: dict[str, str], tmp_path: Path) -> None:
    node = a_worker(environment)
    azure = FakeAzure(name=node)
    flags = [f"--name={node}", "--group=spot", f"--margin={MARGIN_S}"]
    before = metrics(environment, tmp_path)
    with (
        serving(azure),
        work(node, tmp_path, environment) as lines,
        running(watcher(*flags, f"--imds={azure.url}"), environment),
    ):
        wait_for("a first question", azure.polls)
        announced = time.time()
        event = azure.announce("Preempt", NOTICE_S)
        done = lines.until("done")
        wait_for("the acknowledgement", lambda: azure.acknowledged)
    assert len(lines.of("task")["attempts"]) == 1
    assert done["lost_steps"] in NONE_LOST
    gone = lines.of("gone")["time"]
    assert gone < announced + NOTICE_S
    assert list(azure.acknowledged) == [event]
    # It left before Azure was told; the driver looks five times a second.
    assert gone < azure.acknowledged[event] + 10
    after = metrics(environment, tmp_path)
    assert after[NOTICES] == before.get(NOTICES, 0) + 1
    assert after[DRAINS] == before.get(DRAINS, 0) + 1
    # The notice is in whole seconds, and the watcher counts from when it saw it.
    assert gone >= announced + NOTICE_S - MARGIN_S - 1
    assert 0 < after[DRAIN_SECONDS] - before.get(DRAIN_SECONDS, 0) <= NOTICE_S


def metrics(environment: dict[str, str], folder: Path) -> dict[str, float]:
    """The head's endpoint, which counts what workers wrote down before they went."""
    port = free_port(set())
    url = f"http://127.0.0.1:{port}/metrics"

    def answer() -> str:
        try:
            text = requests.get(url, timeout=DEADLINE_S).text
        except requests.ConnectionError:
            return ""
        # A busy GCS may not answer in time.
        return text if "sunspot_eviction_log_up 1.0" in text else ""

    flags = ["--role=head", "--name=head", f"--marks={folder}", f"--metrics-port={port}"]
    with running(watcher(*flags, "--imds=http://127.0.0.1:1"), environment):
        text = wait_for("the metrics", answer)
    lines = (line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
    return {name: float(value) for name, value in lines}


def test_an_idle_node_goes_at_once(environment: dict[str, str]) -> None:
    node = a_worker(environment)
    azure = FakeAzure(name=node)
    with serving(azure):
        event = azure.announce("Reboot", 3600)
        with running(watcher(f"--name={node}", f"--imds={azure.url}"), environment):
            wait_for("the acknowledgement", lambda: azure.acknowledged)
    assert list(azure.acknowledged) == [event]
    assert node not in members(environment)


def happened(sunspot: Sunspot, node: str) -> dict[str, str]:
    """The events of a node, each with its reason."""
    lines = sunspot.ok("events", STACK, "--json").splitlines()
    return {one["kind"]: one["reason"] for one in map(json.loads, lines) if one["node"] == node}


def test_a_rehearsed_eviction_loses_nothing_and_is_told(
    sunspot: Sunspot, environment: dict[str, str], tmp_path: Path
) -> None:
    """`sunspot evict`: what runs there may end, and a new node comes."""
    node = a_worker(environment)
    with work(node, tmp_path, environment) as lines:
        told = sunspot.ok("evict", STACK, node, f"--notice={NOTICE_S}")
        done = lines.until("done")
    assert f"{node} left" in told
    assert len(lines.of("task")["attempts"]) == 1
    assert done["lost_steps"] in NONE_LOST
    assert node not in members(environment)
    replaced = wait_for("the new node", lambda: happened(sunspot, node).get("replaced"), DEADLINE_S)
    # Ray's autoscaler asks for another node as soon as one drains.
    told = list(happened(sunspot, node))
    assert sorted(told) == ["drained", "evicted", "joined", "launched", "replaced"]
    assert told.index("evicted") < told.index("drained")
    new = replaced.removeprefix("by ")
    wait_for("its start", lambda: "joined" in happened(sunspot, new), 2 * DEADLINE_S)
    assert node not in sunspot.ok("status", STACK)


def test_a_node_that_is_killed_without_a_drain_loses_both(
    sunspot: Sunspot, environment: dict[str, str], tmp_path: Path
) -> None:
    """The control: what the first test saves is really at stake."""
    node = a_worker(environment)
    with work(node, tmp_path, environment, seconds=KILLED_TASK_S) as lines:
        kill_node(sunspot.folder(STACK), node)
        done = lines.until("done")
    assert len(lines.of("task")["attempts"]) == 2
    assert done["lost_steps"] > 0
    assert "lost" in happened(sunspot, node)
