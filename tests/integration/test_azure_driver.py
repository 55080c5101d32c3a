"""`RayCluster` on Azure from a laptop: a stand-in for Pulumi, real sshd, real ssh, real Ray.

The body's driver reaches the head through Ray Client and the SSH tunnel.
"""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import ray
from azure_model.pulumi_stack import FakeStack
from harness import Sunspot
from ssh_server import needs_sshd, prepared, running
from waiting import wait_for

from sunspot import RayCluster, stack
from sunspot.cluster import ExternalResourceError
from sunspot.node.free_ports import free_port
from sunspot.ray import ports
from sunspot.targets.azure import target as azure
from sunspot.targets.azure.records import Records
from sunspot.targets.azure.target import AzureTarget

pytestmark = needs_sshd

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


@pytest.fixture(scope="module")
def head(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Head]:
    folder = tmp_path_factory.mktemp("head")
    (folder / "token").write_text(secrets.token_hex(32))
    (folder / "token").chmod(0o600)
    taken: set[int] = set()
    for _ in range(5):
        taken.add(free_port(taken))
    gcs, dashboard, client, agent, metrics = taken
    command = [
        str(Path(sys.executable).with_name("ray")),
        "start",
        "--head",
        "--block",
        "--num-cpus=2",
        "--node-ip-address=127.0.0.1",
        f"--port={gcs}",
        f"--dashboard-port={dashboard}",
        f"--ray-client-server-port={client}",
        f"--dashboard-agent-listen-port={agent}",
        f"--metrics-export-port={metrics}",
        "--disable-usage-stats",
    ]
    token = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(folder / "token")}
    log = folder / "log"
    with log.open("wb") as out:
        process = subprocess.Popen(
            command, env=os.environ | token, stdout=out, stderr=out, start_new_session=True
        )
    try:
        wait_for("the head", lambda: "Ray runtime started" in log.read_text(), 60)
        yield Head((folder / "token").read_text(), dashboard, client)
    finally:
        process.terminate()
        try:
            process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


@pytest.fixture
def project(
    in_the_home: Sunspot, head: Head, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Path]:
    """A project whose stack "far" is on that head."""
    server = prepared(tmp_path)
    server.token.write_text(head.token)
    (tmp_path / "Pulumi.yaml").write_text("name: sunspot\nruntime: python\n")
    (tmp_path / "Pulumi.far.yaml").write_text(STACK.format(key=f"{server.key}.pub"))
    monkeypatch.chdir(tmp_path)
    # The table's number may be taken on this machine.
    monkeypatch.setitem(ports._BY_NAME, "client", replace(ports.get("client"), number=head.client))
    outputs = {
        "head_private_ip": "10.60.0.4",
        "job_address": f"http://127.0.0.1:{head.dashboard}",
        "ssh_command": server.command,
    }
    fake = FakeStack(outputs)
    target = AzureTarget(
        Records(tmp_path / "records"),
        engine=lambda *_, **__: fake,  # type: ignore[arg-type]
        still_there=lambda _: [],
    )
    monkeypatch.setattr(azure, "create", lambda: target)
    with running(server):
        yield tmp_path
    assert target.names() == []


@ray.remote
def square(number: int) -> int:
    return number * number


def test_a_body_runs_on_a_head_that_only_ssh_reaches(project: Path) -> None:
    with RayCluster.from_stack("far") as cluster:
        assert cluster.handle.target == "azure"
        assert ray.get([square.remote(i) for i in range(5)]) == [0, 1, 4, 9, 16]
    assert not ray.is_initialized()


def test_a_config_runs_with_the_settings_of_the_stack_file_of_its_name(project: Path) -> None:
    config = stack.load("far").cluster
    with RayCluster(config=config, target="azure", name="far"):
        assert ray.get(square.remote(3)) == 9


def test_another_python_is_refused_with_both_versions(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ray.util.client import worker

    real = worker.Worker.connection_info
    monkeypatch.setattr(
        worker.Worker, "connection_info", lambda self: real(self) | {"python_version": "3.10.4"}
    )
    here = f"{sys.version_info.major}.{sys.version_info.minor}"
    with pytest.raises(ExternalResourceError, match=r"3\.10\.4") as caught:
        RayCluster.from_stack("far").__enter__()
    assert here in str(caught.value)
