"""The machines' network: a namespace of the test's own, with a bridge that routes between subnets.

Azure's metadata address lies on the bridge too. Nothing here reaches this machine's own network.
"""

import contextlib
import ctypes
import os
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Interface
from pathlib import Path

from azure_model import imds

BRIDGE = "br0"

_CLONE_NEWNET = 0x40000000  # sched.h
_LIBC = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True)
class Network:
    """A network namespace, by name."""

    name: str

    def command(self, *words: str) -> list[str]:
        """The words as a command line that runs in the namespace."""
        return ["ip", "netns", "exec", self.name, *words]

    @contextlib.contextmanager
    def entered(self) -> Iterator[None]:
        """The calling thread is in the namespace: sockets that it makes there stay there."""
        with Path("/proc/thread-self/ns/net").open() as home:
            with Path("/run/netns", self.name).open() as inside:
                _enter(inside.fileno())
            try:
                yield
            finally:
                _enter(home.fileno())

    def add_tap(self, tap: str) -> None:
        """A port of the bridge, for one machine."""
        self._ip("tuntap", "add", "dev", tap, "mode", "tap")
        self._ip("link", "set", tap, "master", BRIDGE, "up")

    def _ip(self, *words: str) -> None:
        _run("ip", "-n", self.name, *words)


@contextlib.contextmanager
def network(gateways: Sequence[IPv4Interface]) -> Iterator[Network]:
    """A network whose bridge has these addresses, and Azure's; gone when the block ends."""
    made = Network(f"sunspot-vm-{os.getpid()}")
    _run("ip", "netns", "add", made.name)
    try:
        made._ip("link", "set", "lo", "up")
        made._ip("link", "add", BRIDGE, "type", "bridge")
        for address in (*gateways, IPv4Interface(f"{imds.ADDRESS}/32")):
            made._ip("address", "add", str(address), "dev", BRIDGE)
        made._ip("link", "set", BRIDGE, "up")
        _run(*made.command("sysctl", "-q", "-w", "net.ipv4.ip_forward=1"))
        # Both subnets are behind the bridge's one port: without this each is told of the short way.
        _run(*made.command("sysctl", "-q", "-w", f"net.ipv4.conf.{BRIDGE}.send_redirects=0"))
        yield made
    finally:
        # Its interfaces go with it.
        _run("ip", "netns", "delete", made.name)


def _enter(namespace: int) -> None:
    if _LIBC.setns(namespace, _CLONE_NEWNET) != 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))


def _run(*words: str) -> None:
    subprocess.run(words, check=True, capture_output=True, text=True)
