"""A cluster of nodes in namespaces, and a node that is none of its."""

import contextlib
import json
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from machines import CACHE, base_image, needs
from machines.docker import Docker, engine
from machines.network import GATEWAY, SUBNET, Network, network, network_of
from machines.node import IMDS_ADDRESS, Node, engine_of, node
from machines.processes import wait_for
from machines.registry import registry
from machines.units import RayUnit, Unit, boot, ray

from cloud_init import NodeValues

REGISTRY_PORT = 5000
IMAGE = f"{GATEWAY}:{REGISTRY_PORT}/{base_image.NAME}"
HEAD_NUMBER = 2
HEAD_ADDRESS = f"{SUBNET}.{HEAD_NUMBER}"

HEAD = NodeValues(
    role="head",
    group="head",
    market="on-demand",
    cluster="sunspot-docker",
    image=IMAGE,
    registry=None,
    head_address=HEAD_ADDRESS,
    # Plain http is all that differs from Azure's.
    vault_url=f"http://{IMDS_ADDRESS}",
    token_secret="ray-token",
    identity_client_id="11111111-2222-3333-4444-555555555555",
    cpus=1,
    gpus=0,
    memory_gb=2,
    accelerator=None,
    driver="none",
    storage_url=None,
    subscription_id="66666666-7777-8888-9999-000000000000",
    resource_group="sunspot-docker",
    scale_set=None,
    autoscaler_config=None,
)

# The nodes as the GCS knows them, to a driver that has the token.
_NODES = """
import json, ray
ray.init(address="auto", log_to_driver=False)
print("ANSWER", json.dumps(ray.nodes()))
"""


@dataclass
class Machine:
    """A node with its engine, and with its Ray unit while that runs."""

    node: Node
    docker: Docker
    unit: RayUnit | None = None
    _running: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)

    def start_ray(self) -> RayUnit:
        """`systemctl start` of Ray's unit; returns when the node has joined."""
        self.unit = self._running.enter_context(ray(self.node))
        self.unit.ready()
        return self.unit

    def close(self) -> None:
        self._running.close()


@dataclass(frozen=True)
class Cluster:
    """Head and workers, joined."""

    head: Machine
    workers: tuple[Machine, ...]

    @property
    def machines(self) -> tuple[Machine, ...]:
        return (self.head, *self.workers)

    def driver(self, script: str) -> Any:
        """Runs a driver in the head's container; what it printed after ANSWER, as JSON."""
        printed = self.head.docker("exec", "sunspot-ray", "python", "-c", script)
        (answer,) = [line for line in printed.splitlines() if line.startswith("ANSWER ")]
        return json.loads(answer.removeprefix("ANSWER "))

    def nodes(self) -> dict[str, Mapping[str, Any]]:
        """The nodes that are alive, by name."""
        return {n["NodeName"]: n for n in self.driver(_NODES) if n["Alive"]}

    def all_nodes(self) -> list[Mapping[str, Any]]:
        """Every node that there was."""
        return self.driver(_NODES)


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
def lan(base: base_image.BaseImage, builder: Docker) -> Iterator[Network]:
    """A network with a registry that has the base image."""
    with registry(base.registry_storage) as local:
        base_image.publish(builder, local, base)
    with network() as made, contextlib.ExitStack() as servers:
        with network_of(made.pid):
            # It answers in that network alone.
            servers.enter_context(registry(base.registry_storage, host=GATEWAY, port=REGISTRY_PORT))
        yield made


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("nodes")


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
        for one in started:
            one.start_ray()
        made = Cluster(started[0], tuple(started[1:]))
        wait_for("three nodes", lambda: len(made.nodes()) == len(started))
        yield made


@pytest.fixture(scope="session")
def stranger(lan: Network, folder: Path) -> Iterator[Machine]:
    """A node beside the cluster, whose vault has another token."""
    with machine(lan, 5, worker_values(group="stranger", market="spot"), folder) as made:
        made.node.azure.secret = "not-the-token"
        boot(made.node)
        yield made


@contextlib.contextmanager
def machine(lan: Network, number: int, values: NodeValues, folder: Path) -> Iterator[Machine]:
    """A node as it is when systemd has started Docker."""
    with node(lan, number, values, folder / f"node-{number}") as made:
        # Docker is not running yet: is-active says so.
        made.stub("systemctl", "exit 3")
        Unit(made, "sunspot-disk.service").oneshot()
        with engine_of(made) as docker:
            started = Machine(made, docker)
            try:
                yield started
            finally:
                started.close()


def worker_values(**changes: Any) -> NodeValues:
    return replace(HEAD, role="worker", scale_set="set", **changes)
