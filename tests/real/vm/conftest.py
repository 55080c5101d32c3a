"""A head and a worker of the stack `dev`, booted with its user data."""

import contextlib
from collections.abc import Iterator

import dev_nodes
import disk
import image
import project
import pytest
from cluster import Cluster
from fake_imds import FakeAzure
from machine import Seed, booted
from machines.needs import ENGINE_PROGRAMS, need
from machines.registry import registry
from network import network
from stand_ins import Certificate, Platform, serving

from sunspot.preview.user_data import STAND_INS

NEEDED = "SUNSPOT_TESTS_NEED_VM"
PROGRAMS = ENGINE_PROGRAMS | {
    "mkfs.ext4": "e2fsprogs",
    "openssl": "openssl",
    "qemu-img": "qemu-utils",
    "qemu-system-x86_64": "qemu-system-x86",
    "ssh": "openssh-client",
}
CACHE = project.ROOT / ".cache" / "vm"
TOKEN = "0123456789abcdef" * 4
CLIENT_ID = "11111111-2222-3333-4444-555555555555"


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Both machines start; nothing of them is awaited yet."""
    need(PROGRAMS, NEEDED)
    folder = tmp_path_factory.mktemp("vm")
    root = disk.root_disk(CACHE)
    storage, reference = image.published()
    user = project.Project.create(folder / "user")
    plan = user.plan()
    certificate = Certificate.create(folder, [dev_nodes.VAULT, dev_nodes.REGISTRY])
    seeds = [
        dev_nodes.seed(
            plan,
            role,
            image=f"{dev_nodes.REGISTRY}/{reference}",
            client_id=CLIENT_ID,
            public_key=user.public_key.read_text().strip(),
            authority=certificate.file.read_text(),
        )
        for role in ("head", "worker")
    ]
    with contextlib.ExitStack() as stack:
        inside = stack.enter_context(network(dev_nodes.Subnets.of(plan).gateways))
        with inside.entered():
            server = stack.enter_context(registry(storage))
        azure = {str(seed.address.ip): _surroundings(seed) for seed in seeds}
        platform = Platform(machines=azure, registry=server.address)
        stack.enter_context(serving(platform, inside, certificate))
        stack.callback(user.close_tunnel)
        head, worker = (
            stack.enter_context(
                booted(seed, root, inside, folder=folder / seed.hostname, key=user.key)
            )
            for seed in seeds
        )
        yield Cluster(
            project=user, network=inside, head=head, worker=worker, platform=platform, token=TOKEN
        )


def _surroundings(seed: Seed) -> FakeAzure:
    secrets = {STAND_INS["token_secret"]: TOKEN}
    return FakeAzure(name=seed.name, zone="", scale_set="", secrets=secrets)
