"""A cluster of nodes in namespaces, and a node that is none of its."""

import contextlib
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from machines import CACHE, base_image, needs
from machines.docker import Docker, engine
from machines.dockerfiles import pip_configuration
from machines.network import GATEWAY, Network, network, network_of
from machines.processes import DEADLINE_S
from machines.registry import registry
from machines.units import boot
from node_cluster import (
    HEAD,
    HEAD_NUMBER,
    REGISTRY_PORT,
    Cluster,
    Machine,
    machine,
    worker_values,
)
from waiting import wait_for


@pytest.fixture(scope="session")
def base() -> base_image.BaseImage:
    needs.need_engine()
    return base_image.base_image()


@pytest.fixture(scope="session")
def builder(base: base_image.BaseImage) -> Iterator[Docker]:
    """An engine that keeps what it built from one run of the tests to the next."""
    with engine(CACHE / "engine") as docker:
        yield docker


@pytest.fixture(scope="session")
def pip_settings(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return pip_configuration(tmp_path_factory.mktemp("pip"))


@pytest.fixture(scope="session")
def base_name(builder: Docker, base: base_image.BaseImage) -> str:
    return base_image.load(builder, base)


@pytest.fixture(scope="session")
def lan(base: base_image.BaseImage, request: pytest.FixtureRequest) -> Iterator[Network]:
    """A network with a registry that has the base image."""
    with registry(base.registry_storage) as local:
        if not local.has(base_image.NAME):
            base_image.publish(request.getfixturevalue("builder"), local, base)
    with network() as made, contextlib.ExitStack() as servers:
        with network_of(made.pid):
            # It answers in that network alone.
            servers.enter_context(registry(base.registry_storage, host=GATEWAY, port=REGISTRY_PORT))
        yield made


@pytest.fixture(scope="session")
def folder() -> Iterator[Path]:
    """For nodes: not pytest's own, which another run of pytest may take away."""
    with tempfile.TemporaryDirectory(prefix="nodes-") as made:
        yield Path(made)


@pytest.fixture(scope="session")
def cluster(lan: Network, folder: Path) -> Iterator[Cluster]:
    """A head and two workers, one of them spot; booted by their units."""
    with contextlib.ExitStack() as stack:
        spot = worker_values(group="spot", market="spot")
        steady = worker_values(group="steady", market="on-demand")
        started = [
            stack.enter_context(machine(lan, number, values, folder))
            for number, values in ((HEAD_NUMBER, HEAD), (3, spot), (4, steady))
        ]
        with ThreadPoolExecutor() as pool:
            list(pool.map(lambda one: boot(one.node), started))
        # One after the other, for the sake of few cores.
        for one in started:
            one.start_ray()
        made = Cluster(started[0], tuple(started[1:]))
        wait_for("three nodes", lambda: len(made.nodes()) == len(started), DEADLINE_S)
        yield made


@pytest.fixture(scope="session")
def stranger(lan: Network, folder: Path) -> Iterator[Machine]:
    """A node beside the cluster, whose vault has another token."""
    with machine(lan, 5, worker_values(group="stranger", market="spot"), folder) as made:
        made.node.azure.secrets["ray-token"] = "not-the-token"
        boot(made.node)
        yield made
