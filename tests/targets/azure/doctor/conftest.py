"""A subscription with everything that the stack "x" needs; a test takes away what it is about."""

import os
import time

import pytest
from azure_model import subscription as model
from azure_model.certificate import Certificate
from azure_model.resource_ids import SUBSCRIPTION, TENANT
from azure_stacks import write
from doctor_runs import PULUMI, write_az, write_tool
from ssh_server import make_key

from sunspot.targets.azure import target as azure
from sunspot.targets.azure.credentials import PRINCIPAL, SUBSCRIPTION_VARIABLE, Endpoints
from sunspot.targets.azure.doctor import image, login, machine
from sunspot.targets.azure.records import Records
from sunspot.targets.azure.target import AzureTarget

VARIABLES = (*PRINCIPAL, *login.OTHERS, SUBSCRIPTION_VARIABLE, *machine.PASSPHRASES)


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    return Certificate.create(tmp_path_factory.mktemp("tls"), ["localhost"])


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
    for name, value in zip(PRINCIPAL, ("client", "right", TENANT), strict=True):
        monkeypatch.setenv(name, value)
    monkeypatch.setenv(SUBSCRIPTION_VARIABLE, SUBSCRIPTION)
    return subscription
