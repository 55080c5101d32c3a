"""The ports of a cluster on this machine: Ray's usual ones where they are free."""

from __future__ import annotations

import contextlib
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import psutil

from sunspot.errors import UsageError
from sunspot.node.free_ports import PortClaims, free_port, port_is_free
from sunspot.node.local.folder import CLUSTER_VARIABLE
from sunspot.ray import ports

# Ray refuses lower ports, which need privileges (ray/_private/parameter.py, 2.60).
USER_PORTS = range(1024, 65_536)

_FLAGS = {"gcs": "--port", "dashboard": "--dashboard-port"}
_WHAT = {"gcs": "GCS", "dashboard": "dashboard and job API"}


@dataclass(frozen=True, kw_only=True)
class HostPorts:
    """The ports that a cluster of this machine got.

    Attributes:
        gcs: the GCS's port.
        dashboard: the port of the dashboard and the job API.
        notes: where it is not Ray's usual one, why not, and how to have that one.
    """

    gcs: int
    dashboard: int
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Chooser:
    """Chooses the ports of one cluster.

    Attributes:
        cluster: the cluster's name.
        recorded: the ports in the records of clusters, with the cluster's name.
        claims: keeps other commands from choosing the same ports.
    """

    cluster: str
    recorded: Mapping[int, str]
    claims: PortClaims

    def choose(self, gcs: int | None, dashboard: int | None) -> HostPorts:
        """The wished ports, or by default Ray's usual ones, or else any that are free.

        Raises:
            UsageError: a wished port is taken, or is not a port.
        """
        first, why = self._one("gcs", gcs, taken=self.recorded)
        second, also = self._one("dashboard", dashboard, taken={*self.recorded, first})
        notes = tuple(note for note in (why, also) if note is not None)
        return HostPorts(gcs=first, dashboard=second, notes=notes)

    def _one(self, name: str, wish: int | None, taken: Container[int]) -> tuple[int, str | None]:
        if wish is not None:
            return self._wished(_FLAGS[name], wish, taken), None
        usual = ports.get(name).number
        if usual not in taken and self.claims.take(usual):
            return usual, None
        number = free_port(taken)
        return number, self._note(name, usual, number)

    def _wished(self, flag: str, port: int, taken: Container[int]) -> int:
        if port not in USER_PORTS:
            raise UsageError(
                f"{flag} {port} is not a port from {USER_PORTS[0]} to {USER_PORTS[-1]}"
            )
        if port in taken or not self.claims.take(port):
            raise UsageError(
                f"port {port} is taken{self._by(port)}; give {flag} another, or leave it out to "
                "have a free one chosen"
            )
        return port

    def _note(self, name: str, usual: int, number: int) -> str:
        other, flag = self._other_cluster(usual), _FLAGS[name]
        free = (
            f"sunspot down {other} && sunspot up {other} {flag} {free_port({usual, number})}"
            if other
            else "end what has it"
        )
        reach = (
            f"a program that says localhost:{usual} does not reach it, ray.init() does"
            if name == "gcs"
            else "the lines below have its address"
        )
        return (
            f"port {usual} is taken{self._by(usual)}, so the {_WHAT[name]} of {self.cluster!r} has "
            f"port {number}: {reach}. To have {usual}: {free}; then: sunspot down {self.cluster} "
            f"&& sunspot up {self.cluster}"
        )

    def _by(self, port: int) -> str:
        if cluster := self._other_cluster(port):
            return f" by the cluster {cluster!r}"
        process = _process(port)
        if process is not None:
            with contextlib.suppress(psutil.Error):
                return f" by {process.name()}, pid {process.pid}"
        return " by a cluster that is starting" if port_is_free(port) else ""

    def _other_cluster(self, port: int) -> str | None:
        """The cluster that a port belongs to, as far as this user may see it."""
        if port in self.recorded:
            return self.recorded[port]
        process = _process(port)
        if process is not None:
            with contextlib.suppress(psutil.Error, OSError):
                folder = process.environ().get(CLUSTER_VARIABLE)
                return Path(folder).name if folder else None
        return None


def taken_by_others(members: Iterable[psutil.Process]) -> set[int]:
    """The TCP ports of this machine on which processes other than these listen."""
    pids = {process.pid for process in members}
    return {
        connection.laddr.port
        for connection in psutil.net_connections("tcp")
        if connection.status == psutil.CONN_LISTEN
        and connection.laddr
        and connection.pid not in pids
    }


def _process(port: int) -> psutil.Process | None:
    """The process on a port, if this user may see it."""
    with contextlib.suppress(psutil.Error):
        for connection in psutil.net_connections("tcp"):
            if connection.laddr and connection.laddr.port == port and connection.pid:
                return psutil.Process(connection.pid)
    return None
