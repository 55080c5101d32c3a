"""The one table of the ports that a cluster's nodes listen on.

Everything that opens, closes or picks a port reads it: firewall rules, `ray start` lines, the local
target. Ray chooses some of these at random; the numbers here pin them, below Ray's worker ports,
so that a rule can name them. Where several nodes share a host, pass other numbers by name. The
ports of training libraries cannot be pinned: the kernel chooses them, so its whole range is in the
table too.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

Role = Literal["head", "worker"]
Where = Literal["head", "every"]
Reach = Literal["cluster", "operator", "caller", "monitoring", "node"]


@dataclass(frozen=True, kw_only=True)
class Port:
    """One TCP port (or, with `last`, a range of them) of a node.

    Attributes:
        name: its name in this table.
        number: the port, or the first of the range.
        setting: what gives Ray the number, a flag of `ray start` or an environment variable; None
            if the port is not Ray's.
        where: "head" for only the head, "every" for every node.
        reach: who may connect: "cluster" (the other nodes), "operator" (the addresses that a user
            lists), "caller" (those that a user lists for Ray Serve, by default none), "monitoring"
            (a scraper, and the cluster), "node" (only the node's own processes).
        purpose: what it is for.
        last: the last port of a range.
        last_setting: what gives Ray the last port.
    """

    name: str
    number: int
    setting: str | None
    where: Where
    reach: Reach
    purpose: str
    last: int | None = None
    last_setting: str | None = None

    @property
    def range(self) -> str:
        """The number as firewall rules write it: "6379", or "10002-19999"."""
        return str(self.number) if self.last is None else f"{self.number}-{self.last}"


PORTS: tuple[Port, ...] = (
    Port(
        name="ssh",
        number=22,
        setting=None,
        where="every",
        reach="operator",
        purpose="shell, and the tunnel to the dashboard",
    ),
    Port(
        name="gcs",
        number=6379,
        setting="--port",
        where="head",
        reach="cluster",
        purpose="cluster state (GCS); every node and driver connects here first",
    ),
    Port(
        name="dashboard",
        number=8265,
        setting="--dashboard-port",
        where="head",
        reach="cluster",
        purpose="dashboard and job submission; from outside through an SSH tunnel",
    ),
    Port(
        name="client",
        number=10001,
        setting="--ray-client-server-port",
        where="head",
        reach="cluster",
        purpose="Ray Client (ray:// addresses)",
    ),
    Port(
        name="serve",
        number=8000,
        setting=None,
        where="head",
        reach="caller",
        purpose="Ray Serve's ingress, once something is deployed",
    ),
    Port(
        name="autoscaler-metrics",
        number=44217,
        setting="AUTOSCALER_METRIC_PORT",
        where="head",
        reach="monitoring",
        purpose="Prometheus metrics of the autoscaler",
    ),
    Port(
        name="dashboard-metrics",
        number=44227,
        setting="DASHBOARD_METRIC_PORT",
        where="head",
        reach="monitoring",
        purpose="Prometheus metrics of the dashboard",
    ),
    Port(
        name="eviction-metrics",
        number=8081,
        setting=None,
        where="head",
        reach="node",
        purpose="Prometheus metrics of evictions; scraped on the head itself",
    ),
    Port(
        name="prometheus",
        number=9090,
        setting=None,
        where="head",
        reach="node",
        purpose="Prometheus; from outside through an SSH tunnel",
    ),
    Port(
        name="grafana",
        number=3000,
        setting=None,
        where="head",
        reach="node",
        purpose="Grafana; from outside through an SSH tunnel",
    ),
    Port(
        name="object-manager",
        number=8076,
        setting="--object-manager-port",
        where="every",
        reach="cluster",
        purpose="objects copied from node to node",
    ),
    Port(
        name="node-manager",
        number=8077,
        setting="--node-manager-port",
        where="every",
        reach="cluster",
        purpose="the raylet: leases, drains, health",
    ),
    Port(
        name="runtime-env-agent",
        number=8078,
        setting="--runtime-env-agent-port",
        where="every",
        reach="node",
        purpose="the raylet asks its own node's agent for environments",
    ),
    Port(
        name="dashboard-agent-grpc",
        number=8079,
        setting="--dashboard-agent-grpc-port",
        where="every",
        reach="cluster",
        purpose="the dashboard's agent, gRPC",
    ),
    Port(
        name="metrics-export",
        number=8080,
        setting="--metrics-export-port",
        where="every",
        reach="monitoring",
        purpose="Prometheus metrics of the node",
    ),
    Port(
        name="dashboard-agent",
        number=52365,
        setting="--dashboard-agent-listen-port",
        where="every",
        reach="cluster",
        purpose="the dashboard's agent, HTTP: logs and jobs of the node",
    ),
    Port(
        name="workers",
        number=10002,
        setting="--min-worker-port",
        last=19999,
        last_setting="--max-worker-port",
        where="every",
        reach="cluster",
        purpose="one for each worker process and driver",
    ),
    Port(
        name="ephemeral",
        # Linux's own default: net.ipv4.ip_local_port_range, kernel documentation, ip-sysctl.
        number=32768,
        last=60999,
        setting=None,
        where="every",
        reach="cluster",
        purpose="what the kernel picks: the rendezvous of Ray Train, gloo and NCCL",
    ),
)


def get(name: str) -> Port:
    """The port of this name.

    Raises:
        KeyError: there is none.
    """
    return _BY_NAME[name]


def of(role: Role) -> tuple[Port, ...]:
    """Every port that a node of this role listens on."""
    return tuple(port for port in PORTS if role == "head" or port.where == "every")


def start_parameters(role: Role, numbers: Mapping[str, int] | None = None) -> dict[str, str]:
    """The flags of `ray start` that pin a node's ports, as name (without dashes) -> number.

    Without `numbers`, all ports are pinned to the table's. Nodes that share a host give numbers by
    port name: only those ports are pinned. 0 lets the kernel choose; for a range, the number is
    its first port.

    Raises:
        KeyError: a node of this role has no port of a given name.
    """
    settings = _settings(role, numbers)
    return {key[2:]: str(value) for key, value in settings if key.startswith("--")}


def environment(role: Role, numbers: Mapping[str, int] | None = None) -> dict[str, str]:
    """The variables that pin the ports without a flag of `ray start`; `numbers` as there."""
    return {key: str(value) for key, value in _settings(role, numbers) if not key.startswith("--")}


_BY_NAME = {port.name: port for port in PORTS}


def _settings(role: Role, numbers: Mapping[str, int] | None) -> Iterator[tuple[str, int]]:
    ports = {port.name: port for port in of(role)}
    if numbers is None:
        numbers = {name: port.number for name, port in ports.items()}
    if unknown := numbers.keys() - ports.keys():
        raise KeyError(f"a {role} has no port named {', '.join(sorted(unknown))}")
    for name, number in numbers.items():
        port = ports[name]
        if port.setting is not None:
            yield port.setting, number
        if port.last_setting is not None and port.last is not None:
            yield port.last_setting, number + port.last - port.number if number else 0
