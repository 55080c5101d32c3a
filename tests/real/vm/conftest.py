"""Where nodes of the stack `dev` are booted with its user data."""

from collections.abc import Iterator

import cluster
import pytest
from cluster import Site
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
