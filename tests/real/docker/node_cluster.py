"""A cluster of nodes in namespaces, each booted by its units."""

import contextlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from azure_model import imds
from machines import base_image
from machines.docker import Docker
from machines.network import GATEWAY, SUBNET, Network
from machines.node import Node, engine_of, node
from machines.processes import StepError
from machines.units import RunningUnit, Unit, running

from cloud_init import AzureFacts, NodeValues
from sunspot.ray.resources import GIB, NodeResources

REGISTRY_PORT = 5000
# What pip trusts, here and where containers have it.
IMAGE = f"{GATEWAY}:{REGISTRY_PORT}/{base_image.NAME}"
HEAD_NUMBER = 2
HEAD_ADDRESS = f"{SUBNET}.{HEAD_NUMBER}"

HEAD = NodeValues(
    role="head",
    group="head",
    market="on-demand",
    cluster="sunspot-docker",
    image=IMAGE,
    resources=NodeResources(cpus=1, gpus=0, memory=2 * GIB),
    driver="none",
    facts=AzureFacts(
        built_image=None,
        registry=None,
        head_address=HEAD_ADDRESS,
        # Plain http is all that differs from Azure's.
        vault_url=f"http://{imds.ADDRESS}",
        token_secret="ray-token",
        storage_url="",
        subscription_id="66666666-7777-8888-9999-000000000000",
        resource_group="sunspot-docker",
        identity_client_id="11111111-2222-3333-4444-555555555555",
    ),
    scale_set=None,
)

# The nodes as the GCS knows them, to a driver that has the token.
_NODES = """
import json, ray
ray.init(address="auto", log_to_driver=False)
print("ANSWER", json.dumps(ray.nodes()))
"""


# Of the last session, to which session_latest is a link within the container only.
_LOGS = """
cd "$(ls --directory -t /var/lib/sunspot/ray/session_2*/logs | head -n 1)"
tail --lines=40 *.out *.err dashboard_agent.log runtime_env_agent.log
"""

# How often a unit may start until its node has joined.
STARTS = 5


@dataclass
class Machine:
    """A node with its engine, and with its Ray unit while that runs."""

    node: Node
    docker: Docker
    unit: RunningUnit | None = None
    _running: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)

    def start_ray(self) -> RunningUnit:
        """`systemctl start` of Ray's unit; returns when the node has joined.

        A unit whose process fails is started again, as its Restart=on-failure says.
        """
        for _ in range(STARTS):
            self.close()
            self.unit = self._running.enter_context(running(self.node))
            if self.unit.ready():
                return self.unit
        printed = self.unit.printed if self.unit else ""
        raise StepError(f"{self.node.name} did not join:\n{printed}\n{self._logs()}")

    def _logs(self) -> str:
        """The ends of what Ray's processes, of which a node's start waits for some, have logged."""
        return self.node.run("sh", "-c", _LOGS).stdout

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
