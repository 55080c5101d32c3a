"""A fake Azure, and machines to boot in it."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import sandbox
from azure_model.imds import FakeAzure, serving
from booted import INSTANCE
from node_values import SECRETS

from cloud_init import NodeValues, render


@pytest.fixture
def azure() -> Iterator[FakeAzure]:
    with serving(FakeAzure(name=INSTANCE, zone="2", secrets=dict(SECRETS))) as server:
        yield server


@pytest.fixture
def boot(tmp_path: Path, azure: FakeAzure) -> Callable[[NodeValues], sandbox.Machine]:
    """Makes a machine from the user data of a node whose Azure is the fake one."""
    if reason := sandbox.why_not():
        pytest.skip(reason)

    def make(values: NodeValues) -> sandbox.Machine:
        facts = replace(values.facts, vault_url=azure.url + "/")
        machine = sandbox.Machine(tmp_path / "vm", render(replace(values, facts=facts)))
        machine.overrides["SUNSPOT_IMDS_URL"] = azure.url
        if values.facts.registry:
            machine.overrides["SUNSPOT_REGISTRY_URL"] = azure.url
        for name in ("sleep", "systemctl", "apt-get", "usermod", "modprobe"):
            machine.stub(name)
        return machine

    return make
