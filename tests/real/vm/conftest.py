"""A head and a worker of the stack `dev`, booted with its user data."""

from collections.abc import Iterator

import cluster
import pytest
from cluster import Site
from machine import Machine
from machines.needs import ENGINE_PROGRAMS, need

NEEDED = "SUNSPOT_TESTS_NEED_VM"
PROGRAMS = ENGINE_PROGRAMS | {
    "mkfs.ext4": "e2fsprogs",
    "openssl": "openssl",
    "qemu-img": "qemu-utils",
    "qemu-system-x86_64": "qemu-system-x86",
    "ssh": "openssh-client",
}


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    need(PROGRAMS, NEEDED)
    with cluster.site(tmp_path_factory.mktemp("vm")) as made:
        yield made


@pytest.fixture(scope="session")
def head(site: Site) -> Iterator[Machine]:
    """The head from its first boot; it comes first.

    A worker that waits for it takes an emulated machine minutes of a processor, too.
    """
    with site.boot("head") as machine:
        yield machine


@pytest.fixture(scope="session")
def worker(site: Site, head: Machine) -> Iterator[Machine]:
    """The worker from its first boot, beside its head."""
    with site.boot("worker") as machine:
        yield machine
