"""This machine's own address, and ports on it that come from the job's id.

Two jobs on one node, of one user or of two, must not want the same ports. So each node of a job has
a block of ports; which one, its job's id says, and if one of its ports is taken, the next block.
"""

from __future__ import annotations

import contextlib
import fcntl
import ipaddress
import socket
import struct
from collections.abc import Mapping

from sunspot.node.free_ports import PORT_RANGE, port_is_free

BLOCK = 16
# The heads' blocks come first: jobs that start on one node at the same moment have ids that differ
# by less than their number, so their heads never ask for the same block.
HEAD_BLOCKS = 250
BLOCKS = len(PORT_RANGE) // BLOCK

# linux/sockios.h
_SIOCGIFADDR = 0x8915


class AddressError(Exception):
    """There is no such address, or no free port; the message says what to change."""


def own_address(interface: str | None) -> str:
    """This machine's IPv4 address.

    Args:
        interface: a network interface's name, or an address block that the address is in; None for
            the address that leads out, or if none does, the one that the host's name has, or the
            only one.

    Raises:
        AddressError: this machine has no such address; the message lists those that it has.
    """
    if interface is None:
        return _outer_address()
    known = _addresses()
    if interface in known:
        return known[interface]
    try:
        block = ipaddress.ip_network(interface)
    except ValueError:
        block = None
    for address in known.values():
        if block is not None and ipaddress.ip_address(address) in block:
            return address
    raise AddressError(
        f"there is no network interface {interface!r} with an IPv4 address here; there are: "
        f"{_listed(known)}. Change interface in sunspot:slurm"
    )


def _listed(known: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {address}" for name, address in sorted(known.items())) or "none"


def head_block(job: int, needed: int) -> int:
    """The first of `needed` free ports for the head of a job. Raises as `_free_block` does."""
    return _free_block(job % HEAD_BLOCKS, range(HEAD_BLOCKS), needed)


def worker_block(job: int, task: int, needed: int) -> int:
    """The same for a worker, by its number in the job."""
    count = BLOCKS - HEAD_BLOCKS
    return _free_block((job * 31 + task) % count, range(HEAD_BLOCKS, BLOCKS), needed)


def _free_block(first: int, blocks: range, needed: int) -> int:
    """The first port of the first block, from number `first` on, whose ports are all free.

    Raises:
        AddressError: no block is free.
    """
    for step in range(len(blocks)):
        start = PORT_RANGE.start + BLOCK * blocks[(first + step) % len(blocks)]
        if all(port_is_free(port) for port in range(start, start + needed)):
            return start
    raise AddressError(
        f"no {needed} neighbouring ports are free between {PORT_RANGE.start} and "
        f"{PORT_RANGE.stop - 1} on this machine"
    )


def _outer_address() -> str:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            # Sends nothing: the kernel only looks up the route. The block is for documentation.
            probe.connect(("192.0.2.1", 9))
            return probe.getsockname()[0]
        except OSError:
            return _named_address()


def _named_address() -> str:
    """The address of the host's name; the only other one where that leads back to this machine.

    Compute nodes may have no route that leads out, and a name that /etc/hosts gives 127.0.1.1
    (github.com/skypilot-org/skypilot, issue 10333).
    """
    named = ""
    with contextlib.suppress(OSError):
        named = socket.gethostbyname(socket.gethostname())
        if not _leads_back(named):
            return named
    known = _addresses()
    outer = [address for address in known.values() if not _leads_back(address)]
    if len(outer) == 1:
        return outer[0]
    if named and not outer:  # a machine without any network
        return named
    raise AddressError(
        f"no route leads out of this machine, and its name {socket.gethostname()!r} has no address "
        f"that others reach; there are: {_listed(known)}. Set interface in sunspot:slurm"
    )


def _leads_back(address: str) -> bool:
    return ipaddress.ip_address(address).is_loopback


def _addresses() -> dict[str, str]:
    """The IPv4 address of each network interface that has one, by the interface's name."""
    found = {}
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        for _, name in socket.if_nameindex():
            request = struct.pack("256s", name.encode()[:15])
            try:
                answer = fcntl.ioctl(probe.fileno(), _SIOCGIFADDR, request)
            except OSError:  # it has no IPv4 address
                continue
            found[name] = socket.inet_ntoa(answer[20:24])
    return found
