"""The life of a cluster from its first boot to an eviction, in order.

Each test goes on where the one before it ended, on the same two machines.
"""

import contextlib
import json
import shlex
import time
from collections.abc import Mapping
from typing import Any

import pytest
from cluster import PATIENCE_S, Site
from image import REGISTRY
from machine import Machine
from machines.processes import StepError

from sunspot.node.collector import GROUP_LABEL

pytestmark = pytest.mark.timeout(3600)

# Azure's shortest is 30 s; the watcher and Ray are slow here.
NOTICE_S = 300.0
# By then systemd would have started Ray's unit again (RestartSec=10).
RESTART_S = 20.0
BOTH = {"head", "workers"}
# What no update may restart, and a service of the disk's own that it does restart.
KEPT = ("sunspot-ray.service", "sunspot-eviction.service", "docker.service", "containerd.service")
CONTROL = "agent-port.service"
LIBC = "/usr/lib/x86_64-linux-gnu/libc.so.6"
# Few processes: each takes an emulated machine many seconds to start.
ONE_TASK = f"""
import ray
ray.init(address="auto", log_to_driver=False)
here = lambda: ray.get_runtime_context().get_node_id()
there = ray.remote(here).options(label_selector={{"{GROUP_LABEL}": "workers"}})
print("on another node:", ray.get(there.remote()) != here())
"""
PHASES = {"disk", "docker", "image", "instance", "token", "gpus", "join"}


def test_the_head_boots_without_an_error(head: Machine):
    _check_first_boot(head)


def test_the_head_comes_up(site: Site, head: Machine):
    head.wait("Ray runs", head.runs_ray, timeout_s=PATIENCE_S)
    # The job API, and with it the first answer, comes after the raylet.
    head.wait("it is a member", lambda: "head" in _up(site), timeout_s=PATIENCE_S)
    _check_phases(head, PHASES | {"state"})
    assert _installed(head) == {"docker.io", "image"}
    # The image's configuration and its own layer. Those below it were on the disk.
    assert len(set(site.platform.blobs)) == 2


def test_the_worker_boots_without_an_error(head: Machine, worker: Machine):
    with head.paused():
        _check_first_boot(worker)
        worker.wait("all but its join", lambda: _has_prepared(worker), timeout_s=PATIENCE_S)


def test_a_worker_that_has_not_joined_tells_what_it_does(site: Site, worker: Machine):
    told = site.sunspot("logs", "--stack", "dev", "--node", worker.address)
    assert "sunspot-docker" in told


def test_the_worker_joins(site: Site, head: Machine, worker: Machine):
    worker.wait("Ray runs", worker.runs_ray, timeout_s=PATIENCE_S)
    head.wait("both are members", lambda: _up(site) == BOTH, timeout_s=PATIENCE_S)
    member = _nodes(site)["workers"]
    assert (member["name"], member["market"]) == (worker.name, "spot")
    _check_phases(worker, PHASES)
    # All was on its disk.
    assert _installed(worker) == set()
    assert len(set(site.platform.blobs)) == 2


def test_a_member_tells_how_it_booted(site: Site, worker: Machine):
    told = site.sunspot("logs", "--stack", "dev", "--node", worker.name)
    assert [phase for phase in PHASES if phase not in told] == []
    assert "Started sunspot-ray.service" in told


def test_the_token_is_nowhere_to_be_seen(site: Site, head: Machine, worker: Machine):
    for machine in (head, worker):
        assert machine.ssh("sudo cat /run/sunspot/token") == site.token
        seen = machine.ssh(
            "sudo docker inspect sunspot-ray; ps -A -o args=; "
            "sudo cat /etc/sunspot/node.env; sudo zcat -f /var/lib/cloud/instance/user-data.txt; "
            "sudo journalctl --boot --no-pager"
        )
        assert "sunspot-ray" in seen
        assert site.token not in seen


def test_an_updated_library_restarts_nothing_of_ours(site: Site, worker: Machine):
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
    assert _up(site) == BOTH


@pytest.mark.usefixtures("worker")
def test_a_driver_on_the_head_has_a_task_on_the_worker(head: Machine):
    """Not by `sunspot submit`, whose processes take minutes here; it is in tests/real/engine."""
    command = ("sudo", "docker", "exec", "sunspot-ray", "python", "-c", ONE_TASK)
    assert "on another node: True" in head.ssh(shlex.join(command), timeout_s=PATIENCE_S)


def test_both_come_back_after_a_reboot(site: Site, head: Machine, worker: Machine):
    """At once, which takes a little less time, but that the worker leaves first.

    That a worker outlives its head's restart is seen in tests/real/docker/test_head_restart.py.
    """
    session = _session(head)
    before = [(machine, machine.boot_id()) for machine in (head, worker)]
    _reboot(worker)
    head.wait("the worker has left", lambda: _up(site) == {"head"}, timeout_s=PATIENCE_S)
    _reboot(head)
    for machine, boot in before:
        _comes_back(machine, boot)
    head.wait("both are members", lambda: _up(site) == BOTH, timeout_s=PATIENCE_S)
    _check_phases(head, PHASES | {"state"})
    _check_phases(worker, PHASES)
    # The same cluster, from what its GCS kept on the data disk.
    assert _session(head) == session


def test_an_eviction_drains_the_worker_before_its_deadline(site: Site, worker: Machine):
    azure = site.platform.machines[worker.address]
    asked = azure.polls()
    worker.wait("a look", lambda: azure.polls() > asked + 1, timeout_s=PATIENCE_S)
    event = azure.announce("Preempt", NOTICE_S)
    worker.wait("it is let go", lambda: event in azure.acknowledged, timeout_s=NOTICE_S)
    assert set(_nodes(site)) == {"head"}
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
    assert set(_nodes(site)) == {"head"}


def _check_first_boot(machine: Machine) -> None:
    """Waits for cloud-init and reads what it, and systemd, had to complain of."""
    told = machine.wait("cloud-init ended", lambda: _ended(machine), timeout_s=PATIENCE_S)
    assert told["v1"]["errors"] == []
    assert machine.ssh("sudo cloud-init status --long").startswith("status: done")
    # What systemd makes of the units on a real boot: no cycle, no unknown line.
    complaints = machine.ssh(
        "sudo journalctl --boot --no-pager | grep --extended-regexp "
        "'ordering cycle|Unknown (key|lvalue)|Failed to parse' || true"
    )
    assert complaints == ""


def _has_prepared(worker: Machine) -> bool:
    """Whether a worker has done all for which it needs no head."""
    return {entry["phase"] for entry in worker.phases()} >= PHASES - {"join"}


def _ended(machine: Machine) -> dict[str, Any]:
    """What cloud-init says of its run, once it ended."""
    return json.loads(machine.ssh("cat /run/cloud-init/result.json"))


def _nodes(site: Site) -> Mapping[str, Any]:
    """What `sunspot status` tells of the nodes, by group."""
    told = json.loads(site.sunspot("status", "dev", "--json"))
    return {node["group"]: node for node in told["nodes"] if node["state"] != "lost"}


def _up(site: Site) -> set[str]:
    """The groups that have a node that is up."""
    nodes = _nodes(site)
    return {group for group in nodes if nodes[group]["state"] == "up"}


def _installed(machine: Machine) -> set[str]:
    """What of Docker and Ray's image this boot had to get."""
    told = machine.ssh("sudo journalctl --boot --no-pager --unit 'sunspot-*'")
    # `docker pull --quiet` prints the image's name.
    signs = {"docker.io": "Setting up docker.io", "image": f"{REGISTRY}/"}
    return {what for what, sign in signs.items() if sign in told}


def _invocation(machine: Machine, unit: str) -> str:
    """The id of a unit's present run: another one after each restart."""
    return machine.ssh(f"systemctl show --property InvocationID --value {unit}").strip()


def _raylets(machine: Machine) -> str:
    """The ids of the raylets that run there, a line each."""
    return machine.ssh("pgrep --exact raylet || true")


def _session(head: Machine) -> str:
    """The name of Ray's session: another one is another cluster."""
    return head.ssh("sudo readlink /var/lib/sunspot/ray/session_latest")


def _reboot(machine: Machine) -> None:
    """Lets it go down; what comes then is for `_comes_back`."""
    # It may go down before ssh has said goodbye; whether it does is seen there.
    with contextlib.suppress(StepError):
        machine.ssh("sudo systemctl reboot")
    machine.hang_up()


def _comes_back(machine: Machine, before: str) -> None:
    """Waits until another boot than that runs Ray."""
    machine.wait("another boot", lambda: machine.boot_id() != before, timeout_s=PATIENCE_S)
    machine.wait("Ray runs again", machine.runs_ray, timeout_s=PATIENCE_S)


def _check_phases(machine: Machine, phases: set[str]) -> None:
    """Every phase of the last boot is written down, and went well."""
    report = machine.phases()
    print(machine.name, json.dumps(report, indent=1))
    assert {entry["phase"] for entry in report} >= phases
    assert [entry for entry in report if not entry["ok"]] == []
