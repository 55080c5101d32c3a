"""SSH through the head to a node: two real sshd on the loopback."""

import shlex
import socket
import subprocess
from dataclasses import replace

import pytest
from ssh_server import needs_sshd, prepared, running

from sunspot.errors import SunspotError
from sunspot.targets import ssh as jump
from sunspot.targets.ssh import RemoteCommandError, Ssh, UnreachableError

pytestmark = needs_sshd


@pytest.fixture
def node(server, tmp_path, monkeypatch):
    """A second sshd, which takes the head's key as well: a worker."""
    node = prepared_node(tmp_path, server, monkeypatch)
    with running(node):
        yield node


def prepared_node(tmp_path, server, monkeypatch):
    folder = tmp_path / "node"
    folder.mkdir()
    node = prepared(folder, takes=server.key)
    node.stub("who", "echo the node")
    monkeypatch.setattr(jump, "SSH_PORT", node.port)
    return node


def test_a_node_is_reached_through_the_head(ssh, node):
    way = jump.through(ssh, "127.0.0.1", "vm_a")
    assert way.read("who") == "the node\n"
    assert way.read("printf", "%s|", "a b", "*") == "a b|*|"
    with pytest.raises(RemoteCommandError, match=r"on vm_a \(127.0.0.1\) exited with 3"):
        way.read("sh", "-c", "exit 3")


def test_without_the_head_no_way_leads_to_a_node(server, node, tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    command = server.command.replace(str(server.port), str(port))
    nobody = Ssh.parse(command, key=server.key, known_hosts=tmp_path / "hosts")
    with pytest.raises(UnreachableError, match="vm_a"):
        jump.through(nobody, "127.0.0.1", "vm_a").read("who")


def test_the_way_to_a_node_may_lead_through_bastion(server, node, tmp_path, monkeypatch):
    # As `az network bastion ssh` does: it calls ssh with what stands behind the dashes.
    az = tmp_path / "bin" / "az"
    az.parent.mkdir()
    az.write_text(
        '#!/bin/sh\nwhile [ "$1" != -- ]; do shift; done; shift\n'
        f'exec {server.command} -i {server.key} -o LogLevel=Error "$@"\n'
    )
    az.chmod(0o755)
    monkeypatch.setenv("PATH", f"{az.parent}:/usr/bin:/bin")
    user = server.command.split()[-1].partition("@")[0]
    command = f"az network bastion ssh --name b --username {user} --ssh-key x"
    head = Ssh.parse(command, key=server.key, known_hosts=tmp_path / "hosts of bastion")
    way = jump.through(head, "127.0.0.1", "vm_a")
    assert way.command[-1] == f"{user}@127.0.0.1"
    assert way.read("who") == "the node\n"


def test_nodes_that_share_an_address_one_after_the_other_do_not_clash(
    server, ssh, tmp_path, monkeypatch
):
    node = prepared_node(tmp_path, server, monkeypatch)
    with running(node):
        assert jump.through(ssh, "127.0.0.1", "vm_a").read("who")
    node.new_host_key()  # vm_a was evicted, another machine has its address
    with running(node):
        check_new_machine(ssh)


def check_new_machine(ssh):
    assert jump.through(ssh, "127.0.0.1", "vm_b").read("who")
    with pytest.raises(SunspotError, match="host key of") as caught:
        jump.through(ssh, "127.0.0.1", "vm_a").read("who")
    forget = str(caught.value).partition("remove the old key: ")[2]
    subprocess.run(shlex.split(forget), check=True, capture_output=True)
    assert jump.through(ssh, "127.0.0.1", "vm_a").read("who")
    assert ssh.read("true") == ""  # the head's own key is still known


def test_a_node_that_does_not_answer_is_told_by_its_name(ssh, monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    monkeypatch.setattr(jump, "SSH_PORT", port)
    with pytest.raises(UnreachableError, match=r"no SSH to vm_a \(127.0.0.1\)"):
        jump.through(ssh, "127.0.0.1", "vm_a").read("true")


def test_a_node_that_refuses_the_key_is_told_by_its_name(ssh, tmp_path, monkeypatch):
    folder = tmp_path / "closed"
    folder.mkdir()
    closed = prepared(folder)
    monkeypatch.setattr(jump, "SSH_PORT", closed.port)
    head = replace(ssh, command=("ssh", "-o", "IdentitiesOnly=yes", *ssh.command[1:]))
    with running(closed), pytest.raises(SunspotError, match=r"vm_a \(127.0.0.1\) refuses the key"):
        jump.through(head, "127.0.0.1", "vm_a").read("true")


def test_what_ssh_would_replace_in_a_proxy_command_stays(tmp_path):
    head = Ssh.parse("ssh -o Tag=%h sunspot@h", key=None, known_hosts=tmp_path / "x")
    proxy = next(w for w in jump.through(head, "fd00::4", "n").command if "ProxyCommand" in w)
    assert "Tag=%%h" in proxy
    assert f"-W '[fd00::4]:{jump.SSH_PORT}'" in proxy
