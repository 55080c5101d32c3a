"""The rehearsal of an eviction, with a program in the place of a node and a node that takes notes.

Real nodes are evicted in tests/integration/test_evict_and_events.py.
"""

import subprocess
import sys
import time
from dataclasses import dataclass, field

import pytest
from local_stacks import WORKERS, stack, write

from sunspot.node.local.eviction import evict, main
from sunspot.node.processes import Process


@dataclass
class RayNode:
    """Ray's side of a node: `idle` leaves once it drains, `hangs` never leaves."""

    process: subprocess.Popen[bytes]
    idle: bool = False
    hangs: bool = False
    left: bool = False
    calls: list[str] = field(default_factory=list)
    untils: list[float] = field(default_factory=list)

    def drain(self, until, message):
        assert "workers-0" in message
        self.calls.append("drain")
        self.untils.append(until)
        self.left = self.idle

    def stop(self):
        self.calls.append("stop")
        assert self.process.poll() is None, "its processes end only after it has left"
        self.left = not self.hangs

    def has_left(self):
        return self.left

    def forget(self):
        pass


@pytest.fixture
def folder(tmp_path):
    folder = write(tmp_path / "clusters", stack(WORKERS))
    folder.add_node(folder.cluster().shapes["workers"])
    return folder


@pytest.fixture
def process(folder):
    code = "import os, signal; os.setsid(); print(flush=True); signal.pause()"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as started:
        assert started.stdout is not None
        started.stdout.readline()
        folder.record_process("workers-0", Process.of(started.pid))
        yield started
        started.kill()


def has_ended(process):
    process.wait(10)  # raises if it has not; its code may be lost, as who stops it also reaps it
    return True


def evicted(folder, ray, notice_s):
    """The seconds that the eviction took, and what the record has of the node afterwards."""
    began = time.time()
    evict(folder, folder.nodes()[1], ray, notice_s)
    found = [event for event in folder.events.read() if event.node == "workers-0"]
    return time.time() - began, {event.kind: event.reason for event in found}


def test_a_node_with_nothing_to_do_goes_at_once(folder, process):
    took, told = evicted(folder, RayNode(process, idle=True), 60)
    assert took < 60
    assert has_ended(process)
    assert list(told) == ["launched", "evicted", "drained"]
    assert "60 s" in told["evicted"]
    assert "nothing ran on it" in told["drained"]


def test_a_busy_node_is_stopped_before_its_notice_is_over(folder, process):
    ray, ends = RayNode(process), time.time() + 2
    took, told = evicted(folder, ray, 2)
    assert took <= 2.5
    assert ray.calls == ["drain", "stop"]
    assert ray.untils[0] < ends
    assert has_ended(process)
    assert "its time was up" in told["drained"]


def test_a_node_that_does_not_leave_ends_with_its_notice(folder, process):
    took, told = evicted(folder, RayNode(process, hangs=True), 1)
    assert took >= 1
    assert has_ended(process)
    assert list(told) == ["launched", "evicted"]


def test_a_machine_is_there_until_its_processes_end(folder, process):
    """As a VM is listed until it is deleted."""
    goals = []

    class Watched(RayNode):
        def has_left(self):
            goals.append(folder.nodes()[1].goal)
            return super().has_left()

    evicted(folder, Watched(process), 1)
    assert set(goals) == {"up"}
    assert folder.nodes()[1].goal == "down"


def test_a_node_that_does_not_exist_is_an_error(folder):
    assert main([str(folder.path), "workers-7", "--notice", "1"]) == 1
    assert "evicted" not in {event.kind for event in folder.events.read()}
