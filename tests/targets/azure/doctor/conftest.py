"""A subscription with everything that the stack "x" needs; a test takes away what it is about."""

import os
import time

import pytest
from azure_model import http_service
from azure_model import subscription as model
from azure_model.arm import Vm
from azure_model.arm import serving as serving_arm
from azure_model.pulumi_stack import FakeStack
from azure_model.resource_ids import SUBSCRIPTION, TENANT
from azure_model.subscription import sku
from azure_stacks import member, write
from contact_runs import HEAD, REGISTRY, SET, Run, outputs, target_of
from doctor_runs import PULUMI, write_az, write_tool
from ssh_server import make_key

from sunspot.targets.azure import environment
from sunspot.targets.azure import target as azure
from sunspot.targets.azure.credentials import SUBSCRIPTION_VARIABLE, Endpoints
from sunspot.targets.azure.doctor import image, login, machine
from sunspot.targets.azure.first_contact import head_jobs, on_site
from sunspot.targets.azure.records import Records
from sunspot.targets.azure.target import AzureTarget

VARIABLES = (
    *environment.VARIABLES,
    login.OTHER,
    SUBSCRIPTION_VARIABLE,
    *machine.PASSPHRASES,
)


@pytest.fixture(scope="module")
def key(tmp_path_factory):
    return make_key(tmp_path_factory.mktemp("key") / "key")


@pytest.fixture
def subscription(project, certificate, key, monkeypatch, tmp_path):
    """A subscription with everything that the stack "x" needs, and a login of the Azure CLI."""
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(certificate.file))
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv(machine.PASSPHRASES[0], "secret")
    tools = tmp_path / "tools"
    tools.mkdir()
    monkeypatch.setenv("PATH", f"{tools}{os.pathsep}{os.environ['PATH']}")
    write_tool(tools / "pulumi", PULUMI)
    write(project, "x", key=f"{key}.pub")
    with model.serving(certificate.context()) as found:
        found.clock_s = time.time()
        monkeypatch.setattr(image, "DOCKER_HUB", found.url.removeprefix("https://"))
        place = AzureTarget(
            Records(tmp_path / "state" / "azure"),
            engine=lambda *_, **__: pytest.fail("no engine is needed"),
            endpoints=Endpoints(login=found.url, management=found.url),
        )
        monkeypatch.setattr(azure, "create", lambda: place)
        write_az(tools)
        yield found


@pytest.fixture
def tools(tmp_path):
    return tmp_path / "tools"


@pytest.fixture
def principal(subscription, monkeypatch):
    """A login by the environment, with a subscription."""
    given = {"ARM_CLIENT_ID": "client", "ARM_CLIENT_SECRET": "right", "ARM_TENANT_ID": TENANT}
    for name, value in {**given, SUBSCRIPTION_VARIABLE: SUBSCRIPTION}.items():
        monkeypatch.setenv(name, value)
    return subscription


@pytest.fixture
def contact(subscription, sshd, api, project, tmp_path, monkeypatch):
    """Everything that a first contact of the stack "x" needs."""
    for module in (head_jobs, on_site):
        monkeypatch.setattr(module, "POLL_S", 0.02)
    write(project, "x", key=f"{sshd.key}.pub")
    sshd.stub("docker", f"echo {REGISTRY}/rayproject/ray:2.60.0-py311")
    subscription.skus.append(sku("Standard_D2s_v5"))
    labels = {"ray.io/node-group": "head"}
    api.known.nodes = [member(HEAD, is_head_node=True, labels=labels, node_id="first")]
    fake, left = FakeStack(outputs(api.port, sshd)), []
    target = target_of(subscription, fake, left, tmp_path)
    monkeypatch.setattr(azure, "create", lambda: target)
    monkeypatch.setattr(head_jobs, "CONFIG", str(tmp_path / "autoscaler.json"))
    with serving_arm() as arm:
        arm.add(SET)
        arm.vms[HEAD] = Vm(HEAD, None, "Succeeded")
        subscription.machines_of = arm
        made = Run(
            arm=arm,
            subscription=subscription,
            fake=fake,
            api=api.known,
            target=target,
            left=left,
            project=project,
            report=tmp_path / "report.json",
            config=tmp_path / "autoscaler.json",
        )
        arm.on_eviction, arm.on_restart = made.evict, made.restart
        api.known.program = made.job
        with http_service.serving(made.answer_storage) as storage:
            made.write_config(storage)
            yield made
    for name in target.names():
        target.records.tunnel(name).close()
