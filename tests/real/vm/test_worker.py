"""The life of a worker from its first boot to an eviction, in order.

Each test goes on where the one before it ended. Its head is not a VM: native_head.py.
"""

import json
import sys
import time
from collections.abc import Iterator
from typing import Any

import pytest
from cluster import PATIENCE_S, Site
from disk import CONTROL
from first_boot import PHASES, check_first_boot, check_phases, check_token, installed
from machine import Machine
from machines.ray_host import RayHost
from native_head import native_head

from sunspot.node.collector import GROUP_LABEL

pytestmark = pytest.mark.timeout(3600)

# Azure's shortest is 30 s; the watcher and Ray are slow here.
NOTICE_S = 300.0
# By then systemd would have started Ray's unit again (RestartSec=10).
RESTART_S = 20.0
# What no update may restart.
KEPT = ("sunspot-ray.service", "sunspot-eviction.service", "docker.service", "containerd.service")
LIBC = "/usr/lib/x86_64-linux-gnu/libc.so.6"
# Of those that are alive; and a task on the worker.
NODES = f"""
import json, ray
ray.init(address="auto", log_to_driver=False)
nodes = [node for node in ray.nodes() if node["Alive"]]
print("ANSWER", json.dumps({{node["Labels"]["{GROUP_LABEL}"]: node["NodeName"] for node in nodes}}))
"""
ONE_TASK = f"""
import json, ray
ray.init(address="auto", log_to_driver=False)
here = lambda: ray.get_runtime_context().get_node_id()
there = ray.remote(here).options(label_selector={{"{GROUP_LABEL}": "workers"}})
print("ANSWER", json.dumps(ray.get(there.remote()) != here()))
"""


@pytest.fixture(scope="module")
def head(site: Site) -> Iterator[RayHost]:
    with native_head(site) as node:
        yield node


@pytest.fixture(scope="module")
def worker(site: Site) -> Iterator[Machine]:
    """The worker from its first boot, on the disk of a baked image."""
    with site.boot("worker") as machine:
        yield machine


def test_the_worker_boots_without_an_error(worker: Machine):
    check_first_boot(worker)


def test_the_worker_joins(site: Site, head: RayHost, worker: Machine):
    worker.wait("Ray runs", worker.runs_ray, timeout_s=PATIENCE_S)
    assert _nodes(head) == {"head": head.host.name, "workers": worker.name}
    check_phases(worker, PHASES)
    # All was on its disk.
    assert installed(worker) == set()
    assert site.platform.blobs == []


def test_the_token_is_nowhere_to_be_seen(site: Site, worker: Machine):
    check_token(worker, site.token)


def test_an_updated_library_restarts_nothing_of_ours(head: RayHost, worker: Machine):
    """What Ubuntu 24.04 does after unattended upgrades: needrestart, with its mode "a".

    A head has the same setting for the same units.
    """
    before = {unit: _invocation(worker, unit) for unit in (*KEPT, CONTROL)}
    assert "" not in before.values()
    # All that runs has the file of before, which is deleted.
    worker.ssh(f"sudo cp {LIBC} {LIBC}.new && sudo mv {LIBC}.new {LIBC}")
    told = worker.ssh("sudo needrestart -r a -l 2>&1", timeout_s=PATIENCE_S)
    assert CONTROL in told
    after = {unit: _invocation(worker, unit) for unit in (*KEPT, CONTROL)}
    changed = {unit for unit in after if after[unit] != before[unit]}
    # It does see them, and would have restarted one that nothing excludes.
    assert "sunspot-ray.service" in told
    assert changed == {CONTROL}, told
    assert set(_nodes(head)) == {"head", "workers"}


@pytest.mark.usefixtures("worker")
def test_a_driver_on_the_head_has_a_task_on_the_worker(head: RayHost):
    assert _answer(head, ONE_TASK) is True


def test_an_eviction_drains_the_worker_before_its_deadline(
    site: Site, head: RayHost, worker: Machine
):
    azure = site.platform.machines[worker.address]
    asked = azure.polls()
    worker.wait("a look", lambda: azure.polls() > asked + 1, timeout_s=PATIENCE_S)
    event = azure.announce("Preempt", NOTICE_S)
    worker.wait("it is let go", lambda: event in azure.acknowledged, timeout_s=NOTICE_S)
    assert set(_nodes(head)) == {"head"}
    watched = worker.ssh("sudo journalctl --boot --no-pager --unit sunspot-eviction")
    assert f"Preempt {event} (Scheduled)" in watched
    assert "the node left after" in watched
    assert f"acknowledged {event}" in watched
    # Its raylet is gone (`ray start --block` stays: to it that is no failure), and none is started
    # again while the event is there.
    worker.wait("no raylet", lambda: not _raylets(worker), timeout_s=NOTICE_S)
    time.sleep(RESTART_S)
    assert _raylets(worker) == ""
    assert "leaving" in worker.ssh("ls /run/sunspot/eviction")
    assert set(_nodes(head)) == {"head"}


def _nodes(head: RayHost) -> dict[str, str]:
    """The names of the nodes that are alive, by group."""
    return _answer(head, NODES)


def _answer(head: RayHost, script: str) -> Any:
    """What a driver on the head prints after ANSWER, as JSON."""
    done = head.run(sys.executable, "-c", script, timeout=PATIENCE_S)
    assert done.returncode == 0, done.stdout + done.stderr
    (answer,) = [line for line in done.stdout.splitlines() if line.startswith("ANSWER ")]
    return json.loads(answer.removeprefix("ANSWER "))


def _invocation(machine: Machine, unit: str) -> str:
    """The id of a unit's present run: another one after each restart."""
    return machine.ssh(f"systemctl show --property InvocationID --value {unit}").strip()


def _raylets(machine: Machine) -> str:
    """The ids of the raylets that run there, a line each."""
    return machine.ssh("pgrep --exact raylet || true")
