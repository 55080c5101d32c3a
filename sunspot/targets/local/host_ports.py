"""The ports of a cluster on this machine: Ray's usual ones where they are free."""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import psutil

from sunspot.node.free_ports import PortClaims, free_port
from sunspot.node.local.folder import CLUSTER_VARIABLE
from sunspot.ray import ports
from sunspot.targets import host_ports
from sunspot.targets.records import STATE_DIRECTORY_VARIABLE

_FLAGS = {"gcs": "--port", "dashboard": "--dashboard-port"}
_WHAT = {"gcs": "GCS", "dashboard": "dashboard and job API", "client": "Ray Client server"}


@dataclass(frozen=True, kw_only=True)
class HostPorts:
    """The ports that a cluster of this machine got.

    Attributes:
        gcs: the GCS's port.
        dashboard: the port of the dashboard and the job API.
        client: the port of the server for `ray://` addresses; None without one.
        notes: where it is not Ray's usual one, why not, and how to have that one.
    """

    gcs: int
    dashboard: int
    client: int | None = None
    notes: tuple[str, ...] = ()

    @property
    def numbers(self) -> dict[str, int]:
        """The ports by their names in the table of ports."""
        client = {} if self.client is None else {"client": self.client}
        return {"gcs": self.gcs, "dashboard": self.dashboard, **client}


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

    def choose(self, gcs: int | None, dashboard: int | None, *, client: bool = False) -> HostPorts:
        """The wished ports, or by default Ray's usual ones, or else any that are free.

        Args:
            gcs: the wished port of the GCS.
            dashboard: the wished port of the dashboard.
            client: whether there is to be a server for `ray://` addresses.

        Raises:
            UsageError: a wished port is taken, or is not a port.
        """
        first, why = self._one("gcs", gcs, taken=self.recorded)
        second, also = self._one("dashboard", dashboard, taken={*self.recorded, first})
        third, too = None, None
        if client:
            third, too = self._one("client", None, taken={*self.recorded, first, second})
        notes = tuple(note for note in (why, also, too) if note is not None)
        return HostPorts(gcs=first, dashboard=second, client=third, notes=notes)

    def again(self, before: HostPorts) -> HostPorts:
        """The ports that a cluster had before, each replaced by another where it is taken now."""
        numbers, notes = dict(before.numbers), []
        for name, number in before.numbers.items():
            if number in self.recorded or not self.claims.take(number):
                taken = {*self.recorded, *numbers.values()}
                numbers[name] = free_port(taken)
                notes.append(
                    f"port {number} is taken now{self._by(number)}, so the {_WHAT[name]} of "
                    f"{self.cluster!r} has port {numbers[name]}"
                )
        return HostPorts(**numbers, notes=tuple(notes))

    def _one(self, name: str, wish: int | None, taken: Container[int]) -> tuple[int, str | None]:
        if wish is not None:
            return self._wished(_FLAGS[name], wish, taken), None
        usual = ports.get(name).number
        if usual not in taken and self.claims.take(usual):
            return usual, None
        number = free_port(taken)
        return number, self._note(name, usual, number)

    def _wished(self, flag: str, port: int, taken: Container[int]) -> int:
        host_ports.check_number(flag, port)
        if port in taken or not self.claims.take(port):
            raise host_ports.taken(flag, port, self._by(port))
        return port

    def _note(self, name: str, usual: int, number: int) -> str:
        reach = (
            f"a program that says localhost:{usual} does not reach it, ray.init() does"
            if name == "gcs"
            else "the lines below have its address"
        )
        return (
            f"port {usual} is taken{self._by(usual)}, so the {_WHAT[name]} of {self.cluster!r} has "
            f"port {number}: {reach}. To have {usual}: {self._freeing(name, usual, number)}; then: "
            f"sunspot down {self.cluster}, and this command again"
        )

    def _freeing(self, name: str, port: int, number: int) -> str:
        """What frees a port; whether a cluster was brought up by --file or --target is unknown."""
        flag = _FLAGS.get(name)
        how = f"with {flag} {free_port({port, number})}" if flag else "without --client"
        up_again = f"then its `up` again {how}"
        if port in self.recorded:
            return f"sunspot down {self.recorded[port]}, {up_again}"
        if folder := _cluster_folder(port):
            state = shlex.quote(str(folder.parent.parent))
            return f"{STATE_DIRECTORY_VARIABLE}={state} sunspot down {folder.name}, {up_again}"
        return "end what has it"

    def _by(self, port: int) -> str:
        """Who has a port, as far as this user may see it: " by nginx, pid 12", or ""."""
        if port in self.recorded:
            return f" by the cluster {self.recorded[port]!r}"
        if folder := _cluster_folder(port):
            return f" by the cluster {folder.name!r}, whose records are in {folder.parent.parent}"
        return host_ports.taken_by(port)


def taken_by_others(members: Iterable[psutil.Process]) -> set[int]:
    """The TCP ports of this machine on which processes other than these listen."""
    pids = {process.pid for process in members}
    return {port for port, pid in host_ports.listening() if pid not in pids}


def _cluster_folder(port: int) -> Path | None:
    """The folder of the cluster that a listening process of this user belongs to."""
    for pid in filter(None, host_ports.listeners(port)):
        with contextlib.suppress(psutil.Error, OSError):
            if folder := psutil.Process(pid).environ().get(CLUSTER_VARIABLE):
                return Path(folder)
    return None
