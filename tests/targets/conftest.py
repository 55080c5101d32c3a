"""A real sshd on the loopback, as the head of a cluster."""

import pytest
from ssh_server import prepared, running

from sunspot.targets.ssh import Ssh


@pytest.fixture
def server(tmp_path):
    folder = tmp_path / "sshd"
    folder.mkdir()
    server = prepared(folder)
    with running(server):
        yield server


@pytest.fixture
def ssh(server, tmp_path):
    return Ssh.parse(server.command, key=server.key, known_hosts=tmp_path / "known_hosts")
