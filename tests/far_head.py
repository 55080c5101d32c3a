"""A head that only SSH reaches: real Ray behind a real sshd, with a stand-in for Pulumi."""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from azure_model.pulumi_stack import FakeStack
from ssh_server import listens, prepared, running
from waiting import wait_for

from sunspot.node.free_ports import free_port
from sunspot.ray import ports
from sunspot.targets.azure import target as azure
from sunspot.targets.azure.records import Records
from sunspot.targets.azure.target import AzureTarget

STACK = """
config:
  azure-native:location: uksouth
  sunspot:cluster:
    head_node: {{vm_size: Standard_D4s_v5}}
  sunspot:access:
    ssh_public_key_file: {key}
    public_ip: true
    ssh_cidrs: [203.0.113.7/32]
"""


@dataclass(frozen=True)
class Head:
    """A head as it runs on a VM: token authentication, a dashboard, a server for Ray Client."""

    token: str
    dashboard: int
    client: int


@contextmanager
def head(folder: Path, *, cpus: int = 2) -> Iterator[Head]:
    """Runs the head until the block ends; its files lie in `folder`."""
    (folder / "token").write_text(secrets.token_hex(32))
    (folder / "token").chmod(0o600)
    taken: set[int] = set()
    for _ in range(5):
        taken.add(free_port(taken))
    temporary = tempfile.mkdtemp(prefix="far-")  # a short path, for a socket's may have 107 bytes
    gcs, dashboard, client, agent, metrics = taken
    command = [
        str(Path(sys.executable).with_name("ray")),
        "start",
        "--head",
        "--block",
        f"--num-cpus={cpus}",
        "--node-ip-address=127.0.0.1",
        f"--port={gcs}",
        f"--dashboard-port={dashboard}",
        f"--ray-client-server-port={client}",
        f"--dashboard-agent-listen-port={agent}",
        f"--metrics-export-port={metrics}",
        "--disable-usage-stats",
        f"--temp-dir={temporary}",
    ]
    variables = {
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN_PATH": str(folder / "token"),
        # A busy machine may need more than the 30 s that Ray waits for its raylet.
        "RAY_START_HOOK": "sunspot.node.raylet.start_hook",
    }
    log = folder / "log"
    with log.open("wb") as out:
        process = subprocess.Popen(
            command, env=os.environ | variables, stdout=out, stderr=out, start_new_session=True
        )

    def serves() -> bool:
        assert process.poll() is None, log.read_text()
        return listens(client)

    try:
        # Its server for Ray Client comes last; until then the tunnel would take its port here.
        wait_for("Ray's server for drivers", serves, 300, seen=log.read_text)
        yield Head((folder / "token").read_text(), dashboard, client)
    finally:
        process.terminate()
        try:
            process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        shutil.rmtree(temporary, ignore_errors=True)


@contextmanager
def project(head: Head, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """We are in a project in `folder`, whose stack "far" is on that head, until the block ends."""
    server = prepared(folder)
    server.token.write_text(head.token)
    (folder / "Pulumi.yaml").write_text("name: sunspot\nruntime: python\n")
    (folder / "Pulumi.far.yaml").write_text(STACK.format(key=f"{server.key}.pub"))
    monkeypatch.chdir(folder)
    # The table's number may be taken on this machine.
    monkeypatch.setitem(ports._BY_NAME, "client", replace(ports.get("client"), number=head.client))
    outputs = {
        "head_private_ip": "10.60.0.4",
        "job_address": f"http://127.0.0.1:{head.dashboard}",
        "ssh_command": server.command,
    }
    fake = FakeStack(outputs)
    target = AzureTarget(
        Records(folder / "records"),
        engine=lambda *_, **__: fake,  # type: ignore[arg-type]
        still_there=lambda _: [],
        quick=lambda *_: [],
    )
    monkeypatch.setattr(azure, "create", lambda: target)
    with running(server):
        yield
    assert target.names() == []
