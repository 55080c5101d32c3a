"""A network of the test's own: a bridge in a namespace, and namespaces of nodes that it joins."""

import contextlib
import ctypes
import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from waiting import wait_for

from machines.processes import DEADLINE_S, checked, environment, stop

# Its first address is the bridge's: where the test puts its servers.
SUBNET = "10.77.0"
GATEWAY = f"{SUBNET}.1"


@dataclass(frozen=True)
class Network:
    """A bridge. `pid` is a process in its namespace."""

    pid: int

    def join(self, pid: int, number: int) -> str:
        """Plugs the namespace of a process in, as the network's address `number`; the address."""
        address = f"{SUBNET}.{number}"
        port = f"port{number}"
        self._ip("link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", str(pid))
        self._ip("link", "set", port, "master", "bridge", "up")
        with network_of(pid):
            for command in (
                ["addr", "add", f"{address}/24", "dev", "eth0"],
                ["link", "set", "eth0", "up"],
                ["link", "set", "lo", "up"],
            ):
                checked(["ip", *command])
        return address

    def _ip(self, *arguments: str) -> None:
        # The namespace of processes is the caller's: so is the pid of a namespace.
        checked(["nsenter", f"--net=/proc/{self.pid}/ns/net", "ip", *arguments])


@contextlib.contextmanager
def network() -> Iterator[Network]:
    """A network that goes with its namespace."""
    command = ["unshare", "--net", "sleep", "infinity"]
    holder = subprocess.Popen(command, env=environment())
    try:
        here = Path("/proc/self/ns/net").readlink()
        wait_for(
            "a namespace", lambda: Path(f"/proc/{holder.pid}/ns/net").readlink() != here, DEADLINE_S
        )
        made = Network(holder.pid)
        made._ip("link", "add", "bridge", "type", "bridge")
        made._ip("addr", "add", f"{GATEWAY}/24", "dev", "bridge")
        made._ip("link", "set", "bridge", "up")
        made._ip("link", "set", "lo", "up")
        yield made
    finally:
        stop(holder)


@contextlib.contextmanager
def network_of(pid: int) -> Iterator[None]:
    """The block's sockets and processes are in the network namespace of a process.

    Threads that start in the block stay there. Of the caller's threads this one alone moves.
    """
    with Path("/proc/thread-self/ns/net").open() as here, Path(f"/proc/{pid}/ns/net").open() as it:
        _enter(it.fileno())
        try:
            yield
        finally:
            _enter(here.fileno())


def _enter(namespace: int) -> None:
    # Python has os.setns from 3.12 on.
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.setns(namespace, 0):
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
