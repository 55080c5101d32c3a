"""What the machines of a stack stand in: their user, their network, and Azure as they see it."""

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import dev_nodes
import disk
import image
from azure_model.certificate import Certificate
from azure_model.imds import FakeAzure
from azure_model.platform import Platform, serving
from disk import Disks
from machine import Machine, Seed, booted
from machines.ray_host import TOKEN
from machines.registry import registry
from network import Network, network
from project import Project

from cloud_init.values import TOKEN_SECRET

CLIENT_ID = "11111111-2222-3333-4444-555555555555"
# Emulated machines on a busy host.
PATIENCE_S = 1800.0


@dataclass(frozen=True, kw_only=True)
class Site:
    """Where the stack's machines are booted. `seeds` are what they are told, by their role."""

    folder: Path
    project: Project
    network: Network
    platform: Platform
    disks: Disks
    seeds: Mapping[str, Seed]
    token: str

    def boot(self, role: str) -> contextlib.AbstractContextManager[Machine]:
        """The head or the worker, from its first boot to the end of the block."""
        return self.boot_as(self.seeds[role])

    def boot_as(self, seed: Seed) -> contextlib.AbstractContextManager[Machine]:
        """A machine that is told this, from its first boot to the end of the block."""
        folder = self.folder / seed.hostname
        return booted(seed, self.disks, self.network, folder=folder, key=self.project.key)

    def sunspot(self, *arguments: str) -> str:
        """What `sunspot ARGUMENTS` prints to its user; fails unless it ends with 0."""
        return self.project.sunspot(self.network, *arguments)


@contextlib.contextmanager
def site(folder: Path) -> Iterator[Site]:
    """A site of the stack `dev` without machines; gone, but for `folder`, when the block ends."""
    disks = disk.disks()
    images = image.published()
    user = Project.create(folder / "user")
    plan = user.plan()
    certificate = Certificate.create(folder, [dev_nodes.VAULT, image.REGISTRY])
    seeds = {
        role: dev_nodes.seed(
            plan,
            role,
            image=f"{image.REGISTRY}/{images.node}",
            client_id=CLIENT_ID,
            public_key=user.public_key.read_text().strip(),
            authority=certificate.file.read_text(),
        )
        for role in ("head", "worker")
    }
    with contextlib.ExitStack() as stack:
        inside = stack.enter_context(network(dev_nodes.Subnets.of(plan).gateways))
        with inside.entered():
            server = stack.enter_context(registry(images.storage))
        azure = {str(seed.address.ip): _surroundings(seed) for seed in seeds.values()}
        platform = Platform(machines=azure, registry=server.address, entered=inside.entered)
        stack.enter_context(serving(platform, certificate))
        stack.callback(user.close_tunnel)
        yield Site(
            folder=folder,
            project=user,
            network=inside,
            platform=platform,
            disks=disks,
            seeds=seeds,
            token=TOKEN,
        )


def _surroundings(seed: Seed) -> FakeAzure:
    secrets = {TOKEN_SECRET: TOKEN}
    user_data = seed.settings
    return FakeAzure(name=seed.name, zone="", scale_set="", secrets=secrets, user_data=user_data)
