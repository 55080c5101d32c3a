"""Machines with a real apt and archives of stand-in packages."""

import os
from collections.abc import Iterator
from pathlib import Path

import apt_machine
import pytest

NEEDED = "SUNSPOT_TESTS_NEED_NETNS"


@pytest.fixture(scope="session")
def archives(tmp_path_factory: pytest.TempPathFactory) -> Iterator[apt_machine.Archives]:
    """Ubuntu's archive and NVIDIA's, as far as a GPU node asks them."""
    if reason := apt_machine.why_not():
        # Where nothing may be left out.
        pytest.fail(reason) if os.environ.get(NEEDED) else pytest.skip(reason)
    apt_machine.base()
    with apt_machine.archives(tmp_path_factory.mktemp("archives")) as served:
        yield served


@pytest.fixture
def boot(tmp_path: Path, archives: apt_machine.Archives) -> apt_machine.Boot:
    """Makes a machine from the user data of a GPU node: it runs the kernel, and has one card."""
    import node_values
    from sandbox import landed

    from cloud_init import render

    def make(kernel: str) -> apt_machine.AptMachine:
        files = landed(render(node_values.T4_WORKER))
        machine = apt_machine.AptMachine(tmp_path / "vm", archives, files)
        machine.use_kernel(kernel)
        machine.plug_in()
        return machine

    return make
