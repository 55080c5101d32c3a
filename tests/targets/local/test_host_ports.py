"""Which ports a cluster of this machine gets, and what is said where they are not Ray's usual."""

import os
import socket
import subprocess
import sys
from types import SimpleNamespace

import psutil
import pytest

from sunspot.errors import UsageError
from sunspot.node.free_ports import PORT_RANGE, PortClaims, free_port
from sunspot.node.local.folder import CLUSTER_VARIABLE
from sunspot.ray import ports
from sunspot.targets import host_ports as shared_ports
from sunspot.targets.local import host_ports
from sunspot.targets.local.host_ports import Chooser

LISTEN = """
import socket, sys
with socket.create_server(("127.0.0.1", int(sys.argv[1]))):
    print(flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def usual(monkeypatch):
    """The usual ports, by name: free ones of this machine instead of Ray's."""
    found = {"gcs": free_port(set())}
    found["dashboard"] = free_port(set(found.values()))
    known = SimpleNamespace(get=lambda name: SimpleNamespace(number=found[name]))
    monkeypatch.setattr(host_ports, "ports", known)
    return found


@pytest.fixture
def chooser():
    with PortClaims() as claims:
        yield Chooser(cluster="dev", recorded={}, claims=claims)


def on_ports(port, **environment):
    """A process that listens on a port."""
    process = subprocess.Popen(
        [sys.executable, "-c", LISTEN, str(port)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=os.environ | environment,
    )
    assert process.stdout is not None
    process.stdout.readline()
    return process


def test_rays_usual_ports_are_taken_when_they_are_free(usual, chooser):
    found = chooser.choose(None, None)
    assert {"gcs": found.gcs, "dashboard": found.dashboard} == usual
    assert found.notes == ()


def test_ray_client_gets_a_port_where_it_is_wished(usual, chooser):
    usual["client"] = free_port(set(usual.values()))
    assert chooser.choose(None, None, client=True).numbers == usual


def test_a_taken_port_of_ray_client_is_told_and_another_chosen(usual):
    taken = usual["client"] = free_port(set(usual.values()))
    with PortClaims() as claims:
        chooser = Chooser(cluster="dev", recorded={taken: "alpha"}, claims=claims)
        found = chooser.choose(None, None, client=True)
    assert found.client not in (None, *usual.values())
    (note,) = found.notes
    assert f"port {taken}" in note
    assert "sunspot down alpha" in note
    assert "--client" in note


def test_the_usual_ports_are_those_that_ray_has():
    assert (ports.get("gcs").number, ports.get("dashboard").number) == (6379, 8265)


def test_two_commands_at_once_do_not_get_the_same_port(usual, chooser):
    chooser.choose(None, None)
    with PortClaims() as claims:
        other = Chooser(cluster="test", recorded={}, claims=claims).choose(None, None)
    assert not {other.gcs, other.dashboard} & set(usual.values())
    assert "a cluster that is starting" in other.notes[0]


@pytest.mark.parametrize(
    ("name", "flag", "parts"),
    [("gcs", "--port", ["localhost:", "ray.init()"]), ("dashboard", "--dashboard-port", [])],
)
def test_a_port_of_another_cluster_is_said_with_the_flag_that_frees_it(usual, name, flag, parts):
    port = usual[name]
    with PortClaims() as claims:
        chooser = Chooser(cluster="dev", recorded={port: "alpha"}, claims=claims)
        found = chooser.choose(None, None)
    assert getattr(found, name) in PORT_RANGE
    (note,) = found.notes
    assert f"port {port} is taken by the cluster 'alpha'" in note
    assert f"sunspot down alpha, then its `up` again with {flag} " in note
    assert "sunspot down dev, and this command again" in note
    assert "sunspot up" not in note  # which would bring a stack of Azure up there
    assert all(part in note for part in parts)


def test_a_cluster_of_another_state_directory_is_said_with_its_folder(usual, chooser):
    with on_ports(usual["gcs"], **{CLUSTER_VARIABLE: "/my state/clusters/alpha"}) as process:
        (note,) = chooser.choose(None, None).notes
        process.kill()
    assert "by the cluster 'alpha', whose records are in /my state" in note
    assert "SUNSPOT_STATE_DIR='/my state' sunspot down alpha" in note


def test_a_port_of_another_program_is_said_with_its_process(usual, chooser):
    with socket.create_server(("127.0.0.1", usual["gcs"])):
        (note,) = chooser.choose(None, None).notes
    assert f"pid {os.getpid()}" in note
    assert "end what has it" in note


def test_a_port_of_another_user_is_said_to_be_so(usual, chooser, monkeypatch):
    port = usual["gcs"]
    seen = SimpleNamespace(status=psutil.CONN_LISTEN, laddr=SimpleNamespace(port=port), pid=None)
    monkeypatch.setattr(psutil, "net_connections", lambda _: [seen])
    monkeypatch.setenv(CLUSTER_VARIABLE, "/state/clusters/own")  # of this process, not of that
    with socket.create_server(("127.0.0.1", port)):
        (note,) = chooser.choose(None, None).notes
    assert f"port {port} is taken by a process of another user" in note
    assert "end what has it" in note


def test_who_is_only_connected_to_a_port_is_not_called_its_owner(usual):
    with on_ports(usual["gcs"]) as process:
        with socket.create_connection(("127.0.0.1", usual["gcs"])):
            assert shared_ports.listeners(usual["gcs"]) == [process.pid]
        process.kill()


def test_a_wished_port_is_taken_and_nothing_said(usual, chooser):
    wish = free_port(set(usual.values()))
    found = chooser.choose(wish, None)
    assert (found.gcs, found.dashboard) == (wish, usual["dashboard"])
    assert found.notes == ()


@pytest.mark.parametrize("port", [-1, 0, 80, 65_536])
def test_a_number_that_is_no_port_is_refused_with_the_flag(chooser, port):
    with pytest.raises(UsageError, match=f"--port {port}"):
        chooser.choose(port, None)


def test_one_port_cannot_be_both(usual, chooser):
    wish = free_port(set(usual.values()))
    with pytest.raises(UsageError, match=f"port {wish} is taken.*--dashboard-port"):
        chooser.choose(wish, wish)


def test_ports_of_others_are_told_from_those_of_members():
    port = free_port(set())
    with on_ports(port) as process:
        assert port in host_ports.taken_by_others([])
        assert port not in host_ports.taken_by_others([psutil.Process(process.pid)])
        process.kill()
