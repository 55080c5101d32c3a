"""SSH to the head: a real sshd on the loopback, real ssh, real processes."""

import errno
import json
import os
import shutil
import socket
import stat
import subprocess

import psutil
import pytest
import requests
from ending import below, kill
from job_api import serving
from ssh_server import make_key, needs_sshd, prepared, running
from waiting import wait_for

from sunspot.errors import SunspotError, UsageError
from sunspot.node.free_ports import PortClaims, free_port
from sunspot.node.processes import Process
from sunspot.targets import tunnel as tunnels
from sunspot.targets.ssh import RemoteCommandError, Ssh, UnreachableError
from sunspot.targets.tunnel import Tunnel

pytestmark = needs_sshd

WRONG_PID = '{"process": {"pid": "none", "start_time": 1}, "port": 1}'


@pytest.fixture
def api():
    with serving() as (api, port):
        yield api, port


@pytest.fixture
def tunnel(tmp_path):
    tunnel = Tunnel(tmp_path / "state with a space")
    tunnel.folder.mkdir()
    yield tunnel
    tunnel.close()


def process_of(tunnel):
    record = tunnel._read()
    assert record is not None
    return psutil.Process(record.process.pid)


def versions(port, token):
    headers = {"Authorization": f"Bearer {token}"}
    return requests.get(f"http://127.0.0.1:{port}/api/jobs/", headers=headers, timeout=10)


def test_the_job_api_answers_through_the_tunnel(ssh, tunnel, api):
    known, port = api
    local = tunnel.open(ssh, port)
    assert local != port
    assert versions(local, known.token).json() == []


def test_a_live_tunnel_is_used_again(ssh, tunnel, api):
    first = tunnel.open(ssh, api[1])
    process = process_of(tunnel)
    assert tunnel.open(ssh, api[1]) == first
    assert process_of(tunnel) == process
    assert Tunnel(tunnel.folder).port() == first


def test_one_tunnel_leads_to_several_ports(ssh, tunnel, api):
    with serving() as (other, other_port):
        first = tunnel.open(ssh, api[1], also=[other_port])
        process = process_of(tunnel)
        assert list(tunnel.also()) == [other_port]
        assert versions(first, api[0].token).ok
        assert versions(tunnel.also()[other_port], other.token).ok
        assert tunnel.open(ssh, api[1], also=[other_port]) == first
        assert process_of(tunnel) == process
        tunnel.open(ssh, api[1])
        assert tunnel.also() == {}
        assert not process.is_running()


def test_a_port_of_a_tunnel_may_have_nothing_behind_it(ssh, tunnel, api):
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))  # taken here, and nobody listens
        closed = silent.getsockname()[1]
        local = tunnel.open(ssh, api[1], also=[closed])
        assert versions(local, api[0].token).ok
        with socket.create_connection(("127.0.0.1", tunnel.also()[closed]), timeout=30) as nobody:
            assert nobody.recv(1) == b""


def test_a_tunnel_that_died_is_found_dead_and_opened_anew(ssh, tunnel, api):
    tunnel.open(ssh, api[1])
    before = process_of(tunnel)
    before.kill()
    wait_for("the tunnel to be gone", lambda: tunnel.port() is None)
    local = tunnel.open(ssh, api[1])
    assert process_of(tunnel) != before
    assert versions(local, api[0].token).ok


def test_a_tunnel_dies_with_its_server(server, tmp_path, tunnel, api):
    folder = tmp_path / "other"
    folder.mkdir()
    other = prepared(folder)
    way = Ssh.parse(other.command, key=other.key, known_hosts=tmp_path / "hosts")
    with running(other) as daemon:
        tunnel.open(way, api[1])
        kill(below(daemon.pid))
        wait_for("the tunnel to be gone", lambda: tunnel.port() is None)


def test_a_preferred_port_is_taken_and_moves_an_open_tunnel(ssh, tunnel, api):
    with socket.create_server(("127.0.0.1", 0)) as probe:
        wanted = probe.getsockname()[1]
    tunnel.open(ssh, api[1])
    assert tunnel.open(ssh, api[1], preferred=wanted) == wanted


def test_the_preferred_port_stays_when_another_one_is_taken_meanwhile(
    ssh, tunnel, api, monkeypatch
):
    with socket.create_server(("127.0.0.1", 0)) as probe:
        wanted = probe.getsockname()[1]
    with socket.create_server(("127.0.0.1", 0)) as busy:
        taken = busy.getsockname()[1]
        monkeypatch.setattr("sunspot.node.free_ports.port_is_free", lambda _: True)
        assert tunnel.open(ssh, api[1], preferred=wanted, also=[taken]) == wanted
        assert tunnel.also()[taken] != taken


def test_a_port_that_a_cluster_of_this_machine_has_claimed_is_left_to_it(ssh, tunnel, api):
    with PortClaims() as claims:
        claimed = free_port(set())
        assert claims.take(claimed)
        assert tunnel.open(ssh, api[1], preferred=claimed) != claimed


def test_a_preferred_port_that_ssh_never_gets_is_given_up(ssh, tunnel, api, monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as busy:
        monkeypatch.setattr("sunspot.node.free_ports.port_is_free", lambda _: True)
        taken = busy.getsockname()[1]
        assert tunnel.open(ssh, api[1], preferred=taken) != taken


def test_another_head_gets_another_tunnel(ssh, tunnel, api):
    tunnel.open(ssh, api[1])
    before = process_of(tunnel)
    other = Ssh(
        command=(*ssh.command[:1], "-4", *ssh.command[1:]), key=ssh.key, known_hosts=ssh.known_hosts
    )
    tunnel.open(other, api[1])
    wait_for("the old tunnel's end", lambda: not before.is_running())


def test_closing_ends_the_process_and_twice_is_fine(ssh, tunnel, api):
    tunnel.open(ssh, api[1])
    process = process_of(tunnel)
    tunnel.close()
    assert not process.is_running()
    assert tunnel.port() is None
    tunnel.close()


def test_a_tunnel_whose_command_is_killed_is_found_by_the_next(ssh, tunnel, api, monkeypatch):
    began = []

    def wait(_tunnel, process, _ports):
        began.append(process)
        assert process_of(tunnel).pid == process.pid  # `close` would end it
        raise KeyboardInterrupt

    monkeypatch.setattr(Tunnel, "_wait", wait)
    with pytest.raises(KeyboardInterrupt):
        tunnel.open(ssh, api[1])
    assert began[0].poll() is not None
    assert not (tunnel.folder / "tunnel.json").exists()


def test_a_full_disk_leaves_no_process(ssh, tunnel, api, monkeypatch):
    began = []
    start = subprocess.Popen

    def note(*arguments, **options):
        began.append(start(*arguments, **options))
        return began[-1]

    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(tunnels, "write_private", full)
    monkeypatch.setattr(tunnels.subprocess, "Popen", note)
    with pytest.raises(UsageError, match=r"No space left.*Free some space"):
        tunnel.open(ssh, api[1])
    assert [one.poll() is None for one in began] == [False]


def test_a_recycled_pid_is_not_taken_for_the_tunnel(ssh, tunnel, api):
    tunnel.open(ssh, api[1])
    process = process_of(tunnel)
    file = tunnel.folder / "tunnel.json"
    me = Process.current()
    file.write_text(file.read_text().replace(str(process.pid), str(me.pid)))
    assert tunnel.port() is None
    tunnel.close()  # and does not end this process
    process.kill()


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"process": {"pid": 1}}', WRONG_PID])
def test_a_broken_record_is_no_tunnel(tunnel, text):
    (tunnel.folder / "tunnel.json").write_text(text)
    assert tunnel.port() is None
    tunnel.close()


def test_the_record_is_private(ssh, tunnel, api):
    tunnel.open(ssh, api[1])
    assert stat.S_IMODE((tunnel.folder / "tunnel.json").stat().st_mode) == 0o600


def test_the_first_host_key_is_taken_and_another_refused(server, ssh, tunnel, api):
    tunnel.open(ssh, api[1])
    assert "ssh-ed25519" in ssh.known_hosts.read_text()
    tunnel.close()
    lines = ssh.known_hosts.read_text().split()
    other = (make_key(server.folder / "other").with_suffix(".pub")).read_text().split()
    ssh.known_hosts.write_text(f"{lines[0]} {other[0]} {other[1]}\n")
    with pytest.raises(SunspotError, match="host key of") as caught:
        tunnel.open(ssh, api[1])
    assert str(ssh.known_hosts) in str(caught.value)
    assert not isinstance(caught.value, UnreachableError)


def test_a_wrong_key_is_told_with_its_name(server, tmp_path, tunnel, api):
    wrong = make_key(tmp_path / "wrong")
    refused = Ssh.parse(server.command, key=wrong, known_hosts=tmp_path / "known_hosts")
    # Keys of this machine's own must not help.
    refused = Ssh(
        command=("ssh", "-o", "IdentitiesOnly=yes", *refused.command[1:]),
        key=wrong,
        known_hosts=refused.known_hosts,
    )
    for action in (lambda: tunnel.open(refused, api[1]), lambda: refused.read("true")):
        with pytest.raises(SunspotError, match="refuses the key") as caught:
            action()
        assert str(wrong) in str(caught.value)
        assert not isinstance(caught.value, UnreachableError)
    assert tunnel.port() is None


def test_nobody_at_the_port_is_unreachable(tmp_path, tunnel):
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    nobody = Ssh.parse(f"ssh -p {port} x@127.0.0.1", key=None, known_hosts=tmp_path / "hosts")
    with pytest.raises(UnreachableError, match="refused"):
        tunnel.open(nobody, 8265)
    with pytest.raises(UnreachableError, match="refused"):
        nobody.read("true")


def test_a_command_is_passed_word_by_word_and_its_output_read(ssh):
    assert ssh.read("printf", "%s|", "a b", "*") == "a b|*|"


def test_a_command_that_fails_is_told(ssh):
    with pytest.raises(RemoteCommandError, match=r"exited with 3.*boo"):
        ssh.read("sh", "-c", "echo boo >&2; exit 3")


def test_run_ends_with_the_code_of_the_command(ssh, capfd):
    assert ssh.run(["echo one | tr n d; exit 7"]) == 7
    assert ssh.run(["echo", "a  b", "$HOME"]) == 0
    assert capfd.readouterr().out == "ode\na  b $HOME\n"


@pytest.mark.skipif(not shutil.which("rsync"), reason="there is no rsync here")
def test_files_are_copied_both_ways(ssh, tmp_path):
    there, back = tmp_path / "there", tmp_path / "back"
    source = tmp_path / "source"
    source.mkdir()
    (source / "a b.txt").write_text("hello")
    assert ssh.copy(f"{source}/", f"head:{there}/") == 0
    assert (there / "a b.txt").read_text() == "hello"
    assert ssh.copy(f"head:{there}/", f"{back}/") == 0
    assert (back / "a b.txt").read_text() == "hello"


@pytest.mark.parametrize("ends", [("a", "b"), ("head:a", "head:b")])
def test_a_copy_has_one_end_on_the_head(ssh, ends):
    with pytest.raises(UsageError, match="head:PATH"):
        ssh.copy(*ends)


@pytest.mark.parametrize("command", ["", "ssh", "rm -rf x", "curl x | sh"])
def test_an_output_that_is_no_ssh_command_is_refused(tmp_path, command):
    with pytest.raises(SunspotError, match="ssh_command"):
        Ssh.parse(command, key=None, known_hosts=tmp_path / "x")


def test_through_bastion_the_options_follow_the_dashes(tmp_path):
    command = "az network bastion ssh --name b --resource-group g --ssh-key ~/.ssh/id_ed25519"
    way = Ssh.parse(command, key=None, known_hosts=tmp_path / "hosts")
    words = way.arguments("-N", remote=["true"])
    cut = words.index("--")
    assert " ".join(words[:cut]) == command
    assert words[-2:] == ["-N", "true"]
    assert "BatchMode=yes" in words[cut:]
    with pytest.raises(UsageError, match="Bastion"):
        way.copy("a", "head:b")


def test_a_missing_program_is_told(tmp_path, monkeypatch, ssh, tunnel):
    monkeypatch.setenv("PATH", str(tmp_path))
    for action in (
        lambda: ssh.read("true"),
        lambda: ssh.run([]),
        lambda: tunnel.open(ssh, 1),
        lambda: ssh.copy("a", "head:b"),
    ):
        with pytest.raises(SunspotError, match="install it"):
            action()


def test_a_port_that_another_process_has_is_not_the_tunnels(ssh, tunnel, api):
    """Another user may take the port between the record and the process, and wait for a token."""
    known, port = api
    local = tunnel.open(ssh, port)
    with socket.create_server(("127.0.0.1", 0)) as theirs:
        record = json.loads((tunnel.folder / "tunnel.json").read_text())
        record["port"] = theirs.getsockname()[1]
        (tunnel.folder / "tunnel.json").write_text(json.dumps(record))
        assert tunnel.port() is None
        assert tunnel.open(ssh, port) != record["port"]
    assert versions(tunnel.port(), known.token).json() == []
    assert local
