"""A stack "x" that is declared: Pulumi's part is a fake; sshd, tunnel and job API are real.

The same commands with the real engine: tests/real/engine/test_sunspot_up.py.
"""

import json
from dataclasses import replace
from types import SimpleNamespace

import pytest
from azure_clusters import FIXED_SET, join, leave, write_settings
from azure_model import entra
from azure_model.access_tokens import MANAGEMENT, access_token
from azure_model.arm import GROUP, HEAD, VIRTUAL_MACHINES, Vm
from azure_model.arm import serving as serving_arm
from azure_model.certificate import Certificate
from azure_model.compute import FIRST_MODEL
from azure_model.pulumi_stack import FakeStack
from azure_model.pulumi_state import MACHINE_TYPE, account, group, resource
from azure_model.resource_ids import TENANT
from azure_stacks import declared, members, up, write
from job_api import TOKEN, serving
from ssh_server import prepared, running

from cloud_init.live import live_settings
from sunspot.node.azure import live
from sunspot.targets import records
from sunspot.targets.azure import environment, head_settings, scaling
from sunspot.targets.azure import target as azure
from sunspot.targets.azure import wait as azure_wait
from sunspot.targets.azure.credentials import SUBSCRIPTION_VARIABLE, Endpoints
from sunspot.targets.azure.plan import plan
from sunspot.targets.azure.preview.user_data import stand_ins
from sunspot.targets.azure.records import Records
from sunspot.targets.azure.target import AzureTarget


@pytest.fixture(scope="module")
def sshd(tmp_path_factory):
    server = prepared(tmp_path_factory.mktemp("sshd"))
    server.token.write_text(f"{TOKEN}\n")
    with running(server):
        yield server


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    return Certificate.create(tmp_path_factory.mktemp("tls"), ["localhost"])


@pytest.fixture
def no_login(monkeypatch):
    """No login in the environment."""
    for name in (*environment.VARIABLES, SUBSCRIPTION_VARIABLE):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def principal(no_login, certificate, monkeypatch):
    """A service principal with a secret, and Azure's login, which knows it."""
    given = {"ARM_CLIENT_ID": "client", "ARM_CLIENT_SECRET": "secret", "ARM_TENANT_ID": TENANT}
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(certificate.file))
    with entra.serving(certificate) as found:
        yield found


@pytest.fixture
def api():
    with serving() as (api, port):
        api.nodes = members()
        yield SimpleNamespace(known=api, port=port)


@pytest.fixture
def az(no_login, tmp_path, monkeypatch):
    """The Azure CLI, which is logged in."""
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


@pytest.fixture
def cluster(place, api, sshd, monkeypatch):
    """The stack "x", up: `arm` is Azure, `joins` says whether machines become members."""
    with serving_arm() as arm:
        target = replace(place.target, endpoints=Endpoints(management=arm.url))
        monkeypatch.setattr(azure, "create", lambda: target)
        monkeypatch.setattr(scaling, "POLL_S", 0.02)
        monkeypatch.setattr(head_settings, "PAUSE_S", 0.02)
        arm.add(FIXED_SET)
        arm.sets[FIXED_SET].capacity = 2
        for name in ("vm_a", "vm_b"):
            arm.vms[name] = Vm(name, FIXED_SET, "Succeeded")
        described = plan(declared(), place.project)
        found = live.parse(live.decoded(live_settings(described, stand_ins(described))))
        boots = dict.fromkeys(found.boots, FIRST_MODEL)
        write_settings(arm, replace(found, boots=boots))
        place.fake.made = (
            group(GROUP),
            resource(MACHINE_TYPE, f"{VIRTUAL_MACHINES}/{HEAD}", protect=True, vmId="one"),
            account(),
        )
        made = SimpleNamespace(arm=arm, target=target, api=api.known, joins=True, gone=[])
        arm.on_boot = lambda vm: join(
            made, vm.name, str(vm.scale_set).removeprefix("sunspot-x-"), vm.model
        )
        arm.on_delete = lambda name: leave(made, name)
        # A stand-in for `docker exec ... python -m sunspot.node.drain ...`.
        sshd.stub("docker", f'echo "$@" >> {place.project}/drained')
        made.drained = place.project / "drained"
        up(place)
        yield made
