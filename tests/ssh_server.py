"""A real sshd on the loopback with keys of its own: what a head looks like to `ssh`."""

import getpass
import os
import shlex
import shutil
import socket
import subprocess
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from ending import below, kill
from waiting import wait_for

PRIVILEGE_SEPARATION = Path("/run/sshd")

SSHD = shutil.which("sshd", path="/usr/sbin:/usr/bin:/usr/local/sbin")
needs_sshd = pytest.mark.skipif(
    not (SSHD and shutil.which("ssh") and shutil.which("ssh-keygen")),
    reason="there is no sshd or no ssh here (packages openssh-server, openssh-client)",
)


@dataclass(frozen=True)
class SshServer:
    """A server that takes `key`.

    It hands out `token` to `sudo -n cat /run/sunspot/token`, and lets `sudo -n` run the
    `journalctl` and `docker` that a test makes stubs for.
    """

    folder: Path
    port: int

    @property
    def key(self) -> Path:
        return self.folder / "key"

    @property
    def token(self) -> Path:
        return self.folder / "token"

    @property
    def command(self) -> str:
        return f"ssh -p {self.port} {getpass.getuser()}@127.0.0.1"

    def stub(self, name: str, script: str) -> None:
        """Puts a program first on the PATH of whoever logs in."""
        tool = self.folder / "bin" / name
        tool.write_text(f"#!/bin/sh\n{script}\n")
        tool.chmod(0o755)

    def new_host_key(self) -> None:
        (self.folder / "host").unlink(missing_ok=True)
        make_key(self.folder / "host")


def make_key(path: Path) -> Path:
    command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(path)]
    subprocess.run(command, check=True)
    return path


def prepared(folder: Path, *, takes: Path | None = None) -> SshServer:
    """The server's files, before it runs; its port is free. `takes` is a key besides its own."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        server = SshServer(folder, probe.getsockname()[1])
    server.new_host_key()
    make_key(server.key)
    stubs = folder / "bin"
    stubs.mkdir()
    server.stub(
        "sudo",
        'case "$*" in\n'
        f'"-n cat /run/sunspot/token") exec /bin/cat {shlex.quote(str(server.token))} ;;\n'
        '"-n journalctl "*|"-n docker "*) shift; exec "$@" ;;\n'
        "esac\nexit 9",
    )
    keys = [f"{key}.pub" for key in (server.key, takes) if key]
    settings = {
        "Port": server.port,
        "ListenAddress": "127.0.0.1",
        "HostKey": folder / "host",
        "AuthorizedKeysFile": " ".join(keys),
        "PidFile": "none",
        "StrictModes": "no",
        "UsePAM": "no",
        "PasswordAuthentication": "no",
        "KbdInteractiveAuthentication": "no",
        # A tenth of the default's work, which also resists quantum computers.
        "KexAlgorithms": "curve25519-sha256",
        "PermitRootLogin": "prohibit-password",
        "SetEnv": f"PATH={stubs}:/usr/local/bin:/usr/bin:/bin",
    }
    text = "".join(f"{name} {value}\n" for name, value in settings.items())
    (folder / "sshd_config").write_text(text)
    return server


@contextmanager
def running(server: SshServer):
    """Runs the server until the block ends; yields its process."""
    assert SSHD is not None
    if os.getuid() == 0:
        PRIVILEGE_SEPARATION.mkdir(mode=0o755, exist_ok=True)  # as its service does
    log = (server.folder / "log").open("ab")
    arguments = [SSHD, "-D", "-e", "-f", str(server.folder / "sshd_config")]
    process = subprocess.Popen(arguments, stdout=log, stderr=log)
    said = (server.folder / "log").read_text

    def is_ready():
        assert process.poll() is None, said()
        return listens(server.port)

    try:
        wait_for("sshd", is_ready, seen=said)
        yield process
    finally:
        # Its sessions outlive it, and with them the tunnels of a test that closed none.
        sessions = below(process.pid)
        process.terminate()
        process.wait()
        kill(sessions)
        log.close()


def listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
