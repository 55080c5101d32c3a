"""A fake Azure, and machines to boot in it."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import fake_azure
import pytest
import vm

from cloud_init import NodeValues, render


@pytest.fixture
def azure() -> Iterator[fake_azure.Azure]:
    with fake_azure.serving() as server:
        yield server


@pytest.fixture
def boot(tmp_path: Path, azure: fake_azure.Azure) -> Callable[[NodeValues], vm.Machine]:
    """Makes a machine from the user data of a node whose Azure is the fake one."""
    if reason := vm.why_not():
        pytest.skip(reason)

    def make(values: NodeValues) -> vm.Machine:
        machine = vm.Machine(tmp_path / "vm", render(replace(values, vault_url=azure.url + "/")))
        machine.overrides["SUNSPOT_IMDS_URL"] = azure.url
        if values.registry:
            machine.overrides["SUNSPOT_REGISTRY_URL"] = azure.url
        for name in ("sleep", "systemctl", "apt-get", "usermod", "modprobe"):
            machine.stub(name)
        return machine

    return make
