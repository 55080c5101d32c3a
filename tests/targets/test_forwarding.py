"""Ports of a head: through a real sshd on the loopback, and on this machine itself."""

import shlex
import socket
import subprocess
import sys

import psutil
import pytest
from ending import words_of
from job_api import serving
from ssh_server import needs_sshd, prepared, running
from waiting import wait_for

from sunspot.errors import SunspotError, UsageError
from sunspot.node.free_ports import free_port
from sunspot.node.processes import is_alive
from sunspot.targets import forwarding
from sunspot.targets.ssh import Ssh, UnreachableError


@pytest.fixture
def ssh(tmp_path):
    folder = tmp_path / "sshd"
    folder.mkdir()
    server = prepared(folder)
    with running(server):
        yield Ssh.parse(server.command, key=server.key, known_hosts=tmp_path / "known_hosts")


@pytest.fixture
def listening():
    """A port on which something listens."""
    with serving() as (_, port):
        yield port


@pytest.fixture
def silent():
    """A port that is taken, and on which nothing listens."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield taken.getsockname()[1]


def answers(port):
    with socket.create_connection(("127.0.0.1", port), timeout=30) as client:
        client.sendall(b"GET / HTTP/1.0\r\n\r\n")
        return client.recv(4)


def tunnels():
    """The processes of ssh that lead to ports, started by this one."""
    return [one for one in psutil.Process().children() if "-L" in words_of(one)]


@needs_sshd
def test_a_port_of_the_head_answers_here_and_nothing_is_left(ssh, listening):
    with forwarding.through(ssh, "hybrid", listening, None) as found:
        assert found.port != listening
        assert answers(found.port) == b"HTTP"
        assert found.is_open is not None
        assert found.is_open()
        (process,) = tunnels()
    assert tunnels() == []
    assert not process.is_running()


@needs_sshd
def test_the_port_here_is_the_one_that_was_asked_for(ssh, listening):
    wanted = free_port({listening})
    with forwarding.through(ssh, "hybrid", listening, wanted) as found:
        assert found.port == wanted
        assert answers(wanted) == b"HTTP"


@needs_sshd
def test_a_connection_that_ends_is_noticed(ssh, listening):
    with forwarding.through(ssh, "hybrid", listening, None) as found:
        is_open = found.is_open
        assert is_open is not None
        (process,) = tunnels()
        process.kill()
        wait_for("the connection to have ended", lambda: not is_open())


FORWARDS = """
import sys, time
from pathlib import Path
from sunspot.targets import forwarding
from sunspot.targets.ssh import Ssh
ssh = Ssh.parse(sys.argv[1], key=Path(sys.argv[2]), known_hosts=Path(sys.argv[3]))
with forwarding.through(ssh, "hybrid", int(sys.argv[4]), None) as found:
    print(found.port, flush=True)
    time.sleep(600)
"""


@needs_sshd
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a process of its parent")
def test_the_way_ends_with_a_command_that_is_killed(ssh, listening):
    command = [shlex.join(ssh.command), str(ssh.key), str(ssh.known_hosts), str(listening)]
    with subprocess.Popen(
        [sys.executable, "-c", FORWARDS, *command], stdout=subprocess.PIPE, text=True
    ) as forward:
        try:
            assert forward.stdout is not None
            port = int(forward.stdout.readline())
            (process,) = psutil.Process(forward.pid).children()
            assert answers(port) == b"HTTP"
        finally:
            forward.kill()
    wait_for("ssh to end", lambda: not is_alive(process))


@needs_sshd
def test_a_server_that_forwards_no_ports_is_named(tmp_path, listening):
    folder = tmp_path / "closed"
    folder.mkdir()
    server = prepared(folder)
    with (folder / "sshd_config").open("a") as config:
        config.write("AllowTcpForwarding no\n")
    with running(server):
        way = Ssh.parse(server.command, key=server.key, known_hosts=tmp_path / "known_hosts")
        with forwarding.through(way, "hybrid", listening, None) as found:
            is_open = found.is_open
            assert is_open is not None
            assert is_open()
            socket.create_connection(("127.0.0.1", found.port), timeout=30).close()
            with pytest.raises(SunspotError, match="AllowTcpForwarding"):
                wait_for("its refusal", lambda: not is_open())


@needs_sshd
def test_a_port_on_which_nothing_listens_is_refused_before_a_tunnel_is_made(ssh, silent):
    with (
        pytest.raises(UsageError, match=rf"port {silent} of the head of 'hybrid'"),
        forwarding.through(ssh, "hybrid", silent, None),
    ):
        pass
    assert tunnels() == []


@needs_sshd
def test_a_port_here_that_is_taken_is_named(ssh, listening, silent):
    with (
        pytest.raises(UsageError, match=f"port {silent} of this machine"),
        forwarding.through(ssh, "hybrid", listening, silent),
    ):
        pass


def test_a_head_that_cannot_be_reached_is_not_one_on_which_nothing_listens(tmp_path, silent):
    gone = Ssh.parse(f"ssh -p {silent} me@127.0.0.1", key=None, known_hosts=tmp_path / "k")
    with pytest.raises(UnreachableError), forwarding.through(gone, "hybrid", 8000, None):
        pass


def test_a_head_that_is_this_machine_has_its_ports_here(listening, silent):
    assert forwarding.here("dev", listening, None) == forwarding.Forward(port=listening)
    assert forwarding.here("dev", listening, listening).is_open is None
    with pytest.raises(UsageError, match=f"leave out :{listening}"):
        forwarding.here("dev", silent, listening)
    with pytest.raises(UsageError, match=f"port {silent} of the head of 'dev'"):
        forwarding.here("dev", silent, None)
