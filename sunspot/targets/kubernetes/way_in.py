"""The way to a cluster's head: its service for a pod, a port-forward for any other machine."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from sunspot.errors import SunspotError
from sunspot.ray import ports
from sunspot.ray.handle import ClusterHandle
from sunspot.targets import forwarding
from sunspot.targets.forwarding import Forward
from sunspot.targets.kubernetes.access import Place
from sunspot.targets.kubernetes.errors import ApiError, UnreachableError
from sunspot.targets.kubernetes.forwarder import HeadPort, Server
from sunspot.targets.kubernetes.objects import Cluster
from sunspot.targets.kubernetes.outages import PATIENCE_S
from sunspot.targets.kubernetes.raycluster import Names
from sunspot.targets.kubernetes.settings import TARGET
from sunspot.targets.tunnel import LOOPBACK, Tunnel

LOOK_S = 5.0


@dataclass(frozen=True)
class Addresses:
    """Where a head's servers are, as this machine reaches them; each is HOST:PORT."""

    dashboard: str
    client: str


@dataclass(frozen=True)
class PodWay:
    """A tunnel's way through Kubernetes' API (`Way` in tunnel.py)."""

    place: Place
    names: Names

    @property
    def command(self) -> tuple[str, ...]:
        place = self.place
        return (place.kubeconfig, place.context, self.names.namespace, self.names.cluster)

    def leading(self, forwards: Sequence[tuple[int, int]], host: str) -> list[str]:  # noqa: ARG002
        pairs = [f"{local}:{port}" for port, local in forwards]
        program = [sys.executable, "-P", "-m", "sunspot.targets.kubernetes.forwarder"]
        return [*program, *self.command, *pairs]

    def failure(self, text: str) -> SunspotError:
        said = [line for line in text.splitlines() if line.strip()][-1:]
        return SunspotError(
            f"the port-forward to {self.names.cluster} ended: {''.join(said) or 'it said nothing'}"
        )


def handle(name: str, names: Names, there: Addresses, token: Path) -> ClusterHandle:
    """How to reach a cluster.

    Args:
        name: its stack's.
        names: what it is called.
        there: its head's servers.
        token: the file with its token.
    """
    host = f"{names.head_service}.{names.namespace}.svc"
    return ClusterHandle(
        name=name,
        target=TARGET,
        head_address=f"{host}:{ports.get('gcs').number}",
        driver_address=f"ray://{there.client}",
        job_address=f"http://{there.dashboard}",
        token_path=token,
    )


def of(place: Place, names: Names, tunnel: Tunnel, preferred: int | None = None) -> Addresses:
    """The addresses of a head's servers. From outside, a tunnel leads there that stays open.

    Args:
        place: where the cluster is.
        names: what it is called.
        tunnel: the cluster's tunnel, which is opened if need be.
        preferred: the port here for the dashboard and the job API.
    """
    dashboard, client = ports.get("dashboard").number, ports.get("client").number
    if place.is_inside:
        host = f"{names.head_service}.{names.namespace}.svc"
        return Addresses(dashboard=f"{host}:{dashboard}", client=f"{host}:{client}")
    local = tunnel.open(PodWay(place, names), dashboard, preferred=preferred, also=(client,))
    also = tunnel.local([client])[client]
    return Addresses(dashboard=f"{LOOPBACK}:{local}", client=f"{LOOPBACK}:{also}")


@contextlib.contextmanager
def lead(cluster: Cluster, name: str, port: int, local: int | None) -> Iterator[Forward]:
    """Leads from a port here to one of a cluster's head while the block lasts.

    Args:
        cluster: the cluster.
        name: the stack's name.
        port: the port on the head's loopback address.
        local: the port here; None takes the same number if it is free, or any.

    Raises:
        UsageError: nothing listens there, or the local port is taken.
        SunspotError: the head cannot be reached.
    """
    to = HeadPort(cluster, port)
    if not to.listens():
        raise forwarding.nothing_listens(name, port)
    with _server(port, local, to) as server, server.serving():
        yield Forward(port=server.server_address[1], is_open=_Looking(cluster))


def _server(port: int, local: int | None, to: HeadPort) -> Server:
    for wished in (port, 0) if local is None else (local,):
        with contextlib.suppress(OSError):
            return Server(wished, to)
    raise forwarding.taken(port, local or port)


@dataclass
class _Looking:
    """Whether the head is still there; asked for often, it looks only now and then.

    An API server that does not answer for a while says nothing about the head.
    """

    cluster: Cluster
    looked: float = field(default_factory=time.monotonic)
    answered: float = field(default_factory=time.monotonic)

    def __call__(self) -> bool:
        now = time.monotonic()
        if now - self.looked < LOOK_S:
            return True
        self.looked = now
        try:
            is_there = self.cluster.head() is not None
        except (UnreachableError, ApiError) as error:
            if not error.may_pass or now - self.answered > PATIENCE_S:
                raise
            return True
        self.answered = now
        return is_there
