"""Who reaches which port through the program's rules; packets on the wire, no Ray yet.

A refused packet is told here instead of dropped, so that nothing has to be waited for.
"""

import itertools
import json
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
from machines.lan import Host
from nsg_nftables import Refusal
from site_plan import Site

from sunspot.ray import ports

TOLD: Refusal = "reject with icmp type admin-prohibited"
pytestmark = pytest.mark.timeout(900)

ASK = str(Path(__file__).with_name("connect.py"))
SILENCE_S = "30"
LISTEN = (
    "import socket; s = socket.create_server(('', 22), backlog=99); print(1, flush=True)\n"
    "while True: s.accept()[0].close()"
)

# Before, between and behind what the table names.
UNLISTED = (1, 21, 23, 111, 443, 6378, 6380, 8075, 8081, 9999, 20000, 32767, 61000, 65535)

# Who is let in besides the cluster's own nodes.
SOURCES: dict[ports.Reach, str] = {"operator": "admin", "caller": "peer"}

Answers = dict[tuple[str, int], str]


@pytest.fixture(scope="module")
def told(site: Site, hosts: dict[str, Host]) -> dict[str, Host]:
    """The hosts, with something at port 22 of each node as sshd would be."""
    for name in site.nodes:
        site.guard(hosts[name], TOLD)
    return hosts


@pytest.fixture(scope="module", autouse=True)
def _ssh(site: Site, told: dict[str, Host]) -> Iterator[None]:
    started = [
        subprocess.Popen(told[name].command(sys.executable, "-c", LISTEN), stdout=subprocess.PIPE)
        for name in site.nodes
    ]
    for process in started:
        assert process.stdout is not None
        assert process.stdout.readline()
    yield
    for process in started:
        process.kill()
        process.wait()


def ask(source: Host, asked: Iterable[tuple[str, int]], silence_s: str = SILENCE_S) -> Answers:
    """What each (address, port) answers the host."""
    listed = list(asked)
    answer = source.run(sys.executable, ASK, silence_s, text=json.dumps(listed))
    return dict(zip(listed, json.loads(answer), strict=True))


def samples(port: ports.Port) -> list[int]:
    return [port.number] if port.last is None else [port.number, port.number + 1, port.last]


def role(name: str) -> ports.Role:
    return "head" if name == "head" else "worker"


def welcome(source: str, target: str, port: ports.Port, site: Site) -> bool:
    """Whether the table lets this host in, and a worker's SSH the head."""
    if port.reach == "operator":
        return source == "admin" or (source == "head" and role(target) == "worker")
    if port.reach == "caller":
        return source == "peer"
    return port.reach != "node" and source in site.nodes


def test_every_port_answers_whom_the_table_says_and_nobody_else(site, told):
    wrong = []
    for source in told:
        targets = [name for name in site.nodes if name != source]
        wanted = {
            (told[target].ip, number): welcome(source, target, port, site)
            for target in targets
            for port in ports.of(role(target))
            for number in samples(port)
        }
        unlisted = {(told[target].ip, n): False for target in targets for n in UNLISTED}
        answers = ask(told[source], [*wanted, *unlisted])
        for asked, reached in {**unlisted, **wanted}.items():
            if (answers[asked] != "blocked") is not reached:
                wrong.append((source, *asked, answers[asked]))
    assert wrong == []


def test_ports_of_the_head_are_closed_on_workers(site, told):
    of_head = {p.number for p in ports.of("head")} - {p.number for p in ports.of("worker")}
    below_ephemeral = [n for n in of_head if n < ports.get("ephemeral").number]
    assert below_ephemeral
    answers = ask(told["head"], [(told["worker1"].ip, n) for n in below_ephemeral])
    assert set(answers.values()) == {"blocked"}


def test_ssh_is_really_open(told):
    for source, target in (("admin", "head"), ("admin", "worker1"), ("head", "worker1")):
        (answer,) = ask(told[source], [(told[target].ip, 22)]).values()
        assert answer == "open"


def test_without_the_last_deny_a_peered_network_gets_in(site, told):
    asked = [(told["head"].ip, n) for n in (22, 6379)]
    assert set(ask(told["peer"], asked).values()) == {"blocked"}
    site.without("head", "deny-all").guard(told["head"], TOLD)
    try:
        peers, others = ask(told["peer"], asked), ask(told["outsider"], asked)
    finally:
        site.guard(told["head"], TOLD)
    assert "blocked" not in peers.values()
    # Azure's own last rule.
    assert set(others.values()) == {"blocked"}


def test_without_any_one_rule_its_port_is_closed(site, told):
    still_open = []
    for subnet, target in (("head", "head"), ("workers", "worker1")):
        for port in ports.of(role(target)):
            if port.reach == "node" or lies_in_another(port):
                continue
            source = SOURCES.get(port.reach, "worker2")
            asked = [(told[target].ip, number) for number in samples(port)]
            site.without(subnet, f"allow-{port.name}").guard(told[target], TOLD)
            if port.name == "ephemeral":
                # Ports with a rule of their own lie within.
                asked = asked[:2]
            if set(ask(told[source], asked).values()) != {"blocked"}:
                still_open.append((subnet, port.name))
        site.guard(told[target], TOLD)
    assert still_open == []


def lies_in_another(port: ports.Port) -> bool:
    """Whether the kernel's own range is open around it, so that its rule opens nothing more."""
    around = ports.get("ephemeral")
    assert around.last is not None
    return port is not around and around.number <= port.number <= around.last


def test_every_rule_of_the_program_is_of_the_table(site):
    names = {f"allow-{p.name}" for p in ports.PORTS if p.reach != "node"} | {"deny-all"}
    found = {rule["name"] for group in itertools.chain(*site.groups.values()) for rule in group}
    assert found == names
