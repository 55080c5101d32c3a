"""A real Ray cluster behind the program's rules: head and workers on hosts of their own.

Refused packets are dropped, as on Azure.
"""

import contextlib
import importlib.util
import json
import os
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from machines.lan import Host
from machines.ray_host import RayHost, joined, running
from site_plan import Site
from test_reach import ask
from waiting import wait_for

from sunspot.ray import ports

CHECKS = str(Path(__file__).with_name("ray_checks.py"))
# Generous: the machine may be busy.
DEADLINE_S = 600.0
# Of whom the rules shut out, and of whom they let in.
SILENCE_S, ANSWER_S = "3", "30"
NEED_TRAIN = "SUNSPOT_TESTS_NEED_TRAIN"

WORK = ("tasks", "actors", "large_object", "rendezvous", "job")
MEMBERS = ("head", "worker1", "worker2")

pytestmark = [pytest.mark.integration, pytest.mark.timeout(1800)]


@dataclass(frozen=True)
class Cluster:
    """The nodes that are up, and the head that is asked about them."""

    nodes: dict[str, RayHost]

    @property
    def head(self) -> RayHost:
        return self.nodes["head"]

    def check(self, *names: str) -> dict[str, dict[str, Any]]:
        """Runs checks of ray_checks.py on the head: name -> its value or its error."""
        done = self.head.run(sys.executable, CHECKS, *names, timeout=DEADLINE_S)
        found = {line["check"]: line for line in map(json.loads, done.stdout.splitlines())}
        assert set(found) == set(names), done.stdout + done.stderr
        return found


@pytest.fixture(scope="module")
def cluster(
    site: Site, hosts: dict[str, Host], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("ray")
    head = site.hosts["head"]
    with contextlib.ExitStack() as stack:
        nodes = {
            name: stack.enter_context(joined(hosts[name], head, folder / name)) for name in MEMBERS
        }
        yield Cluster(nodes)


@pytest.fixture(scope="module")
def work(cluster: Cluster) -> dict[str, dict[str, Any]]:
    """What real work on the cluster found."""
    return cluster.check(*WORK)


def test_tasks_run_on_every_node(work, hosts):
    assert work["tasks"].get("value") == {name: hosts[name].ip for name in MEMBERS}, work["tasks"]


def test_an_actor_is_called_from_every_node(work):
    assert work["actors"].get("value") == 5, work["actors"]


def test_a_large_object_goes_from_one_worker_to_the_other_and_to_the_head(work):
    size = 500 * 10**6
    expected = [size, size // 8 * 7]
    found = work["large_object"]
    assert found.get("value") == {"worker": expected, "head": expected}, found


def test_the_head_takes_jobs_from_itself(work):
    assert work["job"].get("value") == ["SUCCEEDED", "42"], work["job"]


def test_workers_meet_at_ports_that_nothing_pins(work):
    assert work["rendezvous"].get("value") == ["said", "said"], work["rendezvous"]


def test_without_the_rule_for_those_ports_workers_do_not_meet(cluster, site, hosts):
    for name in ("worker1", "worker2"):
        site.without("workers", "allow-ephemeral").guard(hosts[name])
    try:
        found = cluster.check("rendezvous")["rendezvous"]
    finally:
        for name in ("worker1", "worker2"):
            site.guard(hosts[name])
    assert all(said.startswith("TimeoutError at port") for said in found["value"]), found


def test_ray_train_meets_across_the_workers(cluster, hosts):
    if importlib.util.find_spec("torch") is None:
        reason = "torch is not here: make setup-train"
        pytest.fail(reason) if os.environ.get(NEED_TRAIN) else pytest.skip(reason)
    found = cluster.check("train")["train"]
    assert "value" in found, found
    assert [seen["sum"] for seen in found["value"]] == [3.0, 3.0]
    assert {seen["address"] for seen in found["value"]} == {
        hosts["worker1"].ip,
        hosts["worker2"].ip,
    }


def listening(host: Host) -> set[int]:
    """The TCP ports of a host that another could reach, if nothing stood before them."""
    found = set()
    for line in host.run("ss", "--listening", "--tcp", "--numeric", "--no-header").splitlines():
        address, _, port = line.split()[3].rpartition(":")
        if not address.startswith(("127.", "[::1]", "[::ffff:127.")):
            found.add(int(port))
    return found


def listened(hosts: dict[str, Host]) -> set[tuple[str, int]]:
    """The same of all nodes, with the address of each."""
    return {(hosts[name].ip, port) for name in MEMBERS for port in listening(hosts[name])}


def test_ray_listens_only_where_the_table_says(work, hosts):
    for name in MEMBERS:
        role = "head" if name == "head" else "worker"
        pinned = [p for p in ports.of(role) if p.setting is not None]
        spans = [range(p.number, (p.last or p.number) + 1) for p in pinned]
        stray = {port for port in listening(hosts[name]) if not any(port in s for s in spans)}
        assert stray == set(), name


def test_nobody_else_reaches_what_ray_listens_on(work, hosts):
    live = sorted(listened(hosts))
    assert len(live) > 3 * 5
    strangers = ("admin", "outsider", "peer")
    with ThreadPoolExecutor() as threads:  # each waits for its silence
        told = threads.map(lambda name: ask(hosts[name], live, SILENCE_S), strangers)
    for name, answers in zip(strangers, told, strict=True):
        assert {asked: a for asked, a in answers.items() if a != "blocked"} == {}, name
    # The same from one of the cluster's own: they are there.
    answers = ask(hosts["worker3"], live, ANSWER_S)
    lasting = listened(hosts)  # an idle worker of Ray's may have ended meanwhile
    closed = {asked[1] for asked, a in answers.items() if a != "open" and asked in lasting}
    ours = {p.number for p in ports.PORTS if p.reach == "node" and p.setting}
    assert closed == ours  # without those that are not Ray's


def test_without_the_rule_for_the_gcs_no_worker_joins(cluster, site, hosts, tmp_path):
    head, late = hosts["head"], hosts["worker3"]
    gcs = (head.ip, ports.get("gcs").number)
    site.without("head", "allow-gcs").guard(head)
    try:
        with running(late, site.hosts["head"], tmp_path / "late") as node:
            # Its first word to the cluster is on its way, and stays so.
            wait_for(
                "the worker to ask the GCS",
                lambda: asks(node, *gcs),
                DEADLINE_S,
                seen=lambda: node.output()[-3000:],
            )
            members = cluster.check("names")["names"]
            wait_for("the worker to ask again", lambda: asks(node, *gcs))
            assert not node.is_up()
    finally:
        site.guard(head)
    assert members.get("value") == sorted(MEMBERS), members
    # The rule was all that kept it out.
    assert ask(late, [gcs], ANSWER_S) == {gcs: "open"}


def knocks(host: Host, address: str, port: int) -> bool:
    """Whether the host has a connection to there that nobody has answered yet."""
    asked = ("state", "syn-sent", "dst", f"{address}:{port}")
    return bool(host.run("ss", "--tcp", "--numeric", "--no-header", *asked).strip())


def asks(node: RayHost, address: str, port: int) -> bool:
    """Whether the node's host knocks there; fails where the node has ended."""
    assert node.process.poll() is None, node.output()[-3000:]
    return knocks(node.host, address, port)
