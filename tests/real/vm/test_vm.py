"""The life of a cluster from its first boot to an eviction, in order.

Each test goes on where the one before it ended, on the same two machines.
"""

import json
from collections.abc import Mapping
from typing import Any

import pytest
from cluster import Cluster
from machine import Machine

pytestmark = pytest.mark.timeout(3600)

# Emulated machines that share a busy host's CPUs.
BOOT_S = 1800.0
PATIENCE_S = 1800.0
# Azure's shortest is 30 s; the watcher and Ray are slow here.
NOTICE_S = 120.0
PHASES = {"disk", "docker", "image", "instance", "token", "gpus", "join"}


def test_cloud_init_ends_without_an_error(cluster: Cluster):
    for machine in (cluster.head, cluster.worker):
        told = machine.wait("cloud-init ended", lambda m=machine: _ended(m), timeout_s=BOOT_S)
        assert told["v1"]["errors"] == []
        assert machine.ssh("sudo cloud-init status --long").startswith("status: done")
        # What systemd makes of the units on a real boot: no cycle, no unknown line.
        complaints = machine.ssh(
            "sudo journalctl --boot --no-pager | grep --extended-regexp "
            "'ordering cycle|Unknown (key|lvalue)|Failed to parse' || true"
        )
        assert complaints == ""


def test_the_head_comes_up(cluster: Cluster):
    cluster.head.wait("Ray runs", lambda: _active(cluster.head), timeout_s=PATIENCE_S)
    assert _nodes(cluster)["head"]["state"] == "up"


def test_the_worker_joins(cluster: Cluster):
    cluster.worker.wait("Ray runs", lambda: _active(cluster.worker), timeout_s=PATIENCE_S)
    cluster.head.wait("both are members", lambda: _both_up(cluster), timeout_s=PATIENCE_S)
    worker = _nodes(cluster)["workers"]
    assert (worker["name"], worker["market"]) == (cluster.worker.name, "spot")


def test_every_phase_of_the_boot_is_written_down(cluster: Cluster):
    for machine in (cluster.head, cluster.worker):
        _check_phases(machine)


def test_the_token_is_nowhere_to_be_seen(cluster: Cluster):
    for machine in (cluster.head, cluster.worker):
        token = machine.ssh("sudo cat /run/sunspot/token")
        assert token == cluster.token
        seen = machine.ssh(
            "sudo docker inspect sunspot-ray; ps -A -o args=; "
            "sudo cat /etc/sunspot/node.env /var/lib/cloud/instance/user-data.txt; "
            "sudo journalctl --boot --no-pager"
        )
        assert "sunspot-ray" in seen
        assert token not in seen


def test_primes_are_found_on_both(cluster: Cluster):
    _find_primes(cluster)


def test_the_head_comes_back_after_a_reboot(cluster: Cluster):
    _reboot(cluster.head)
    _check_phases(cluster.head)
    cluster.head.wait("both are members", lambda: _both_up(cluster), timeout_s=PATIENCE_S)


def test_the_worker_comes_back_after_a_reboot(cluster: Cluster):
    _reboot(cluster.worker)
    _check_phases(cluster.worker)
    cluster.head.wait("both are members", lambda: _both_up(cluster), timeout_s=PATIENCE_S)
    _find_primes(cluster)


def test_an_eviction_drains_the_worker_before_its_deadline(cluster: Cluster):
    azure = cluster.platform.machines[cluster.worker.address]
    asked = azure.polls()
    cluster.worker.wait("a look", lambda: azure.polls() > asked + 1, timeout_s=PATIENCE_S)
    event = azure.announce("Preempt", NOTICE_S)
    cluster.worker.wait("it is let go", lambda: event in azure.acknowledged, timeout_s=NOTICE_S)
    assert set(_nodes(cluster)) == {"head"}
    # Nor does it join again while the event is there.
    watched = cluster.worker.ssh("sudo journalctl --no-pager --unit sunspot-eviction")
    assert "drained" in watched or "left" in watched


def _ended(machine: Machine) -> dict[str, Any]:
    """What cloud-init says of its run, once it ended."""
    return json.loads(machine.ssh("cat /run/cloud-init/result.json"))


def _active(machine: Machine) -> bool:
    """Whether Ray's unit is started: its container runs and its raylet is healthy."""
    return machine.ssh("systemctl is-active sunspot-ray || true").strip() == "active"


def _nodes(cluster: Cluster) -> Mapping[str, Any]:
    """What `sunspot status` tells of the nodes, by group."""
    told = json.loads(cluster.sunspot("status", "dev", "--json"))
    return {node["group"]: node for node in told["nodes"] if node["state"] != "lost"}


def _both_up(cluster: Cluster) -> bool:
    nodes = _nodes(cluster)
    return {group for group in nodes if nodes[group]["state"] == "up"} == {"head", "workers"}


def _find_primes(cluster: Cluster) -> None:
    told = cluster.sunspot(
        "submit", "--stack", "dev", "--", "python", "workloads/primes.py", "--stop", "2000000"
    )
    assert "148,933 primes in" in told
    assert "2 nodes" in told


def _reboot(machine: Machine) -> None:
    """Reboots and waits until Ray runs again."""
    before = machine.boot_id()
    # It may go down before ssh has said goodbye.
    machine.ssh("sudo systemctl reboot || true")
    machine.wait("another boot", lambda: machine.boot_id() != before, timeout_s=BOOT_S)
    machine.wait("Ray runs again", lambda: _active(machine), timeout_s=PATIENCE_S)


def _check_phases(machine: Machine) -> None:
    report = json.loads(machine.ssh("cat /var/log/sunspot/boot.json"))
    assert {entry["phase"] for entry in report} >= PHASES
    assert [entry for entry in report if not entry["ok"]] == []
