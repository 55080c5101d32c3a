"""The log of a node on Azure: the phases of its boot, and the journal of Sunspot's units.

Both are read over SSH, which also works for a machine that never joined Ray, and for a head whose
Ray is dead. A worker is reached through the head, the only source of SSH that its subnet allows.
"""

from __future__ import annotations

import contextlib
import ipaddress
import json
import shlex
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TextIO

import psutil
from rich.console import Console
from rich.table import Table

from sunspot.errors import SunspotError
from sunspot.ray.handle import ClusterHandle
from sunspot.spec_values import HEAD
from sunspot.targets import abilities, members
from sunspot.targets.protocol import Progress
from sunspot.targets.ssh import RemoteCommandError, Ssh, UnreachableError, through
from sunspot.targets.tunnel import end

# Where cloud_init's phase.sh writes it.
BOOT_REPORT = "/var/log/sunspot/boot.json"
UNITS = "sunspot-*"
JOURNAL = ("sudo", "-n", "journalctl", "--boot", "--no-pager", "--unit", UNITS)

# For a short command on a machine, including the connection.
READ_TIMEOUT_S = 90.0

Addresses = Callable[[], Mapping[str, str]]
"""Returns the private address of each machine, by its name."""


def of_ray(connect: Callable[[], ClusterHandle]) -> Mapping[str, str]:
    """The private addresses of Ray's nodes, by their names; none if Ray does not answer.

    Raises:
        UnreachableError: the head cannot be reached.
    """
    from sunspot.ray.jobs import JobClient

    try:
        return members.addresses(JobClient(connect()).state("nodes"))
    except UnreachableError:
        raise
    except SunspotError:
        return {}


@dataclass(frozen=True, kw_only=True)
class Machines:
    """The machines of a cluster, and how to find them.

    Attributes:
        stack: the stack's name.
        head: the SSH connection to the head.
        head_name: the name of the head's VM; "" if that is not known.
        head_addresses: the head's addresses.
        group: the name of the resource group.
        members: the machines that Ray lists; none if Ray does not answer.
        addresses: the machines that Azure lists, including those that never joined; raises
            SunspotError if Azure could not be asked.
    """

    stack: str
    head: Ssh
    head_name: str
    head_addresses: frozenset[str]
    group: str
    members: Addresses
    addresses: Addresses


def show(
    machines: Machines, node: str, out: TextIO, note: Progress, *, follow: bool = False
) -> int:
    """Prints a node's boot phases and journal.

    Args:
        machines: the cluster's machines.
        node: "head", the name of a VM, or its private address.
        out: where the log is printed.
        note: called with notes for people.
        follow: whether to go on until the connection ends.

    Returns:
        journalctl's exit code.

    Raises:
        UsageError: there is no such node; the message lists the VMs.
        SunspotError: the node cannot be reached; the message says how to see its console.
    """
    try:
        way = _way(machines, node, note)
    except UnreachableError as error:  # Ray's list is read through the head
        raise _explained(machines, machines.head, error) from error
    try:
        _show_phases(way, out, note)
    except SunspotError as error:
        raise _explained(machines, way, error) from error
    return _show_journal(way, out, note, follow=follow)


# Which machine


def _way(machines: Machines, node: str, note: Progress) -> Ssh:
    if node in {HEAD, machines.head_name, *machines.head_addresses}:
        return machines.head
    if _is_address(node):
        return through(machines.head, node, node)
    name, address = _found(machines, node, note)
    if address in machines.head_addresses:
        return machines.head
    return through(machines.head, address, name)


def _is_address(node: str) -> bool:
    with contextlib.suppress(ValueError):
        return bool(ipaddress.ip_address(node))
    return False


def _found(machines: Machines, node: str, note: Progress) -> tuple[str, str]:
    """The name and the private address of a VM. Azure's names are case-insensitive."""
    known = machines.members()
    if node in known:
        return node, known[node]
    note(f"{node} is not a member of the Ray cluster; asking Azure for its address")
    try:
        addresses = machines.addresses()
    except SunspotError as error:
        listed = ", ".join(sorted(known)) or "none"
        raise SunspotError(
            f"{node!r} is not a member of the Ray cluster (members: {listed}), and Azure could not "
            f"be asked for its address: {error}. Give its private address instead: "
            "--node 10.60.128.4"
        ) from error
    for name, address in addresses.items():
        if name.casefold() == node.casefold():
            return name, address
    raise abilities.unknown(machines.stack, "node", node, sorted(addresses))


def _explained(machines: Machines, way: Ssh, error: SunspotError) -> SunspotError:
    """The error for a machine that cannot be reached, or for the head on the way to it."""
    name = way.alias or machines.head_name or HEAD
    if way is not machines.head:
        try:
            machines.head.read("true", timeout_s=READ_TIMEOUT_S)
        except SunspotError as of_head:
            error, name = of_head, machines.head_name or HEAD
    if not isinstance(error, UnreachableError):
        return error
    group, remark = machines.group, ""
    if _is_address(name):
        name, remark = "NAME", f" (NAME: az vm list-ip-addresses --resource-group {group} -o table)"
    return SunspotError(
        f"{error}. It may still be booting, or have failed before SSH started. To see its console: "
        f"az vm boot-diagnostics get-boot-log --name {name} --resource-group {group}{remark}"
    )


# Boot phases


def _show_phases(way: Ssh, out: TextIO, note: Progress) -> None:
    try:
        report = way.read("cat", BOOT_REPORT, timeout_s=READ_TIMEOUT_S)
    except RemoteCommandError:
        note(
            f"no phase of the boot has ended yet: there is no {BOOT_REPORT}. "
            "See cloud-init's own log: /var/log/cloud-init-output.log"
        )
        return
    try:
        Console(file=out, highlight=False).print(phase_table(json.loads(report)))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        note(f"{BOOT_REPORT} cannot be read ({error})")


def phase_table(phases: Sequence[Mapping[str, object]]) -> Table:
    """The phases of boot.json as a table; `start` is in seconds since the kernel started.

    Raises:
        ValueError, KeyError, TypeError: the phases are not those of a boot report.
    """
    table = Table(box=None, header_style="dim")
    table.add_column("phase")
    table.add_column("start (s)", justify="right")
    table.add_column("seconds", justify="right")
    table.add_column("ok")
    for phase in phases:
        table.add_row(
            str(phase["phase"]),
            f"{phase['start']:.1f}",
            f"{phase['seconds']:.1f}",
            "[green]yes[/]" if phase["ok"] else "[red]no[/]",
        )
    return table


# The journal


def _show_journal(way: Ssh, out: TextIO, note: Progress, *, follow: bool) -> int:
    command = list(JOURNAL)
    if follow:
        # By name as well: journalctl matches the pattern only at its start, and only with units
        # that have written something by then (journalctl(1), --unit).
        command += [part for unit in _units(way) for part in ("--unit", unit)]
        command += ["--follow", "--no-tail"]
    return _stream(way, command, out, note)


def _units(way: Ssh) -> list[str]:
    """The names of Sunspot's units on the machine."""
    command = ("systemctl", "list-units", "--all", "--plain", "--no-legend", UNITS)
    listed = way.read(*command, timeout_s=READ_TIMEOUT_S)
    return [line.split()[0] for line in listed.splitlines() if line.strip()]


def _stream(way: Ssh, remote: Sequence[str], out: TextIO, note: Progress) -> int:
    """Prints the output of a command on the machine as it comes; returns its exit code."""
    with tempfile.TemporaryFile("w+", errors="replace") as complaints:
        process = subprocess.Popen(
            way.arguments(remote=[shlex.join(remote)]),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=complaints,
            text=True,
            errors="replace",
        )
        try:
            assert process.stdout is not None  # noqa: S101 - for the type checker
            for line in process.stdout:
                out.write(line)
                out.flush()
            code = process.wait()
        finally:
            if process.poll() is None:
                with contextlib.suppress(psutil.Error):
                    end(psutil.Process(process.pid))
                process.wait()
            if process.stdout:
                process.stdout.close()
        complaints.seek(0)
        said = complaints.read()
    if code == 255:
        raise way.failure(said)
    if code and said.strip():  # `az` always prints something to stderr
        note(said.strip())
    return code
