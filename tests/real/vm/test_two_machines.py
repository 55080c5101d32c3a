"""A head and a worker from their first boots to a reboot of both, in order.

Each test goes on where the one before it ended, on the same two machines. They take two processors
half an hour, so they are not part of .ci/run; test_worker.py is.
"""

import contextlib
import json
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from cluster import PATIENCE_S, Site
from first_boot import PHASES, check_first_boot, check_phases, check_token, has_prepared, installed
from machine import Machine
from machines.processes import StepError

pytestmark = pytest.mark.timeout(3600)

BOTH = {"head", "workers"}


@pytest.fixture(scope="module")
def head(site: Site) -> Iterator[Machine]:
    """The head from its first boot; it comes first.

    A worker that waits for it takes an emulated machine minutes of a processor, too.
    """
    with site.boot("head") as machine:
        yield machine


@pytest.fixture(scope="module")
def worker(site: Site, head: Machine) -> Iterator[Machine]:
    """The worker from its first boot, beside its head."""
    with site.boot("worker") as machine:
        yield machine


def test_the_head_boots_without_an_error(head: Machine):
    check_first_boot(head)


def test_the_head_comes_up(site: Site, head: Machine):
    head.wait("Ray runs", head.runs_ray, timeout_s=PATIENCE_S)
    # The job API, and with it the first answer, comes after the raylet.
    head.wait("it is a member", lambda: "head" in _up(site), timeout_s=PATIENCE_S)
    check_phases(head, PHASES | {"state"})
    assert installed(head) == {"docker.io", "image"}
    # The image's configuration and its own layer. Those below it were on the disk.
    assert len(set(site.platform.blobs)) == 2


def test_the_worker_boots_without_an_error(head: Machine, worker: Machine):
    with head.paused():
        check_first_boot(worker)
        worker.wait("all but its join", lambda: has_prepared(worker), timeout_s=PATIENCE_S)


def test_a_worker_that_has_not_joined_tells_what_it_does(site: Site, worker: Machine):
    told = site.sunspot("logs", "--stack", "dev", "--node", worker.address)
    assert "sunspot-docker" in told


def test_the_worker_joins(site: Site, head: Machine, worker: Machine):
    worker.wait("Ray runs", worker.runs_ray, timeout_s=PATIENCE_S)
    head.wait("both are members", lambda: _up(site) == BOTH, timeout_s=PATIENCE_S)
    member = _nodes(site)["workers"]
    assert (member["name"], member["market"]) == (worker.name, "spot")
    check_phases(worker, PHASES)
    # All was on its disk.
    assert installed(worker) == set()
    assert len(set(site.platform.blobs)) == 2


def test_a_member_tells_how_it_booted(site: Site, worker: Machine):
    told = site.sunspot("logs", "--stack", "dev", "--node", worker.name)
    assert [phase for phase in PHASES if phase not in told] == []
    assert "Started sunspot-ray.service" in told


def test_the_token_is_nowhere_to_be_seen(site: Site, head: Machine, worker: Machine):
    for machine in (head, worker):
        check_token(machine, site.token)


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
    check_phases(head, PHASES | {"state"})
    check_phases(worker, PHASES)
    # The same cluster, from what its GCS kept on the data disk.
    assert _session(head) == session


def _nodes(site: Site) -> Mapping[str, Any]:
    """What `sunspot status` tells of the nodes, by group."""
    told = json.loads(site.sunspot("status", "dev", "--json"))
    return {node["group"]: node for node in told["nodes"] if node["state"] != "lost"}


def _up(site: Site) -> set[str]:
    """The groups that have a node that is up."""
    nodes = _nodes(site)
    return {group for group in nodes if nodes[group]["state"] == "up"}


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
