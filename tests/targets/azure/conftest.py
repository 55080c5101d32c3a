"""A stack "x" that is declared: Pulumi's part is a fake; sshd, tunnel and job API are real.

The same commands with the real engine: tests/real/engine/test_sunspot_up.py.
"""

import json
from types import SimpleNamespace

import pytest
from azure_model.access_tokens import MANAGEMENT, access_token
from azure_model.pulumi_stack import FakeStack
from azure_stacks import members, write
from job_api import TOKEN, serving
from ssh_server import prepared, running

from sunspot.targets import records
from sunspot.targets.azure import target as azure
from sunspot.targets.azure import wait as azure_wait
from sunspot.targets.azure.records import Records
from sunspot.targets.azure.target import AzureTarget


@pytest.fixture(scope="module")
def sshd(tmp_path_factory):
    server = prepared(tmp_path_factory.mktemp("sshd"))
    server.token.write_text(f"{TOKEN}\n")
    with running(server):
        yield server


@pytest.fixture
def api():
    with serving() as (api, port):
        api.nodes = members()
        yield SimpleNamespace(known=api, port=port)


@pytest.fixture
def az(tmp_path, monkeypatch):
    """The Azure CLI, which is logged in."""
    for name in ("ARM_CLIENT_ID", "ARM_CLIENT_SECRET", "ARM_TENANT_ID"):
        monkeypatch.delenv(name, raising=False)
    tool = tmp_path / "tools" / "az"
    tool.parent.mkdir()
    token = json.dumps({"accessToken": access_token(MANAGEMENT)})
    tool.write_text(f"#!/bin/sh\n[ $2 = get-access-token ] && echo '{token}'\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tool.parent}:/usr/bin:/bin:/usr/sbin")
    return tool


@pytest.fixture
def project(tmp_path, monkeypatch):
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "Pulumi.yaml").write_text("name: sunspot\nruntime: python\n")
    monkeypatch.chdir(folder)
    monkeypatch.setenv(records.STATE_DIRECTORY_VARIABLE, str(tmp_path / "state"))
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setattr(azure_wait, "POLL_S", 0.02)
    return folder


@pytest.fixture
def place(project, tmp_path, sshd, api, monkeypatch):
    """A target whose stack "x" is declared and not up; `fake` is Pulumi, `left` what Azure has."""
    write(project, "x", key=f"{sshd.key}.pub")
    fake = FakeStack(
        {
            "head_private_ip": "10.60.0.4",
            "job_address": f"http://127.0.0.1:{api.port}",
            "ssh_command": sshd.command,
        }
    )
    left = []
    target = AzureTarget(
        Records(tmp_path / "state" / "azure"),
        engine=lambda *_, **__: fake,  # type: ignore[arg-type]
        still_there=lambda _: left,
        quick=lambda *_: [],
    )
    monkeypatch.setattr(azure, "create", lambda: target)
    found = SimpleNamespace(target=target, fake=fake, left=left, project=project)
    yield found
    for name in target.names():
        target.records.tunnel(name).close()
