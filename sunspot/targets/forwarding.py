"""Ports of a cluster's head that this machine reaches: what listens there is for its user only."""

from __future__ import annotations

import contextlib
import socket
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, runtime_checkable

from sunspot.errors import SunspotError, UsageError
from sunspot.node.free_ports import port_is_free
from sunspot.targets.protocol import Progress
from sunspot.targets.ssh import RemoteCommandError, Ssh
from sunspot.targets.tunnel import LOOPBACK, Tunnel


@dataclass(frozen=True, kw_only=True)
class Forward:
    """A port of a head, as this machine reaches it.

    Attributes:
        port: the port of the loopback address here.
        is_open: whether the way to it is still open, or a SunspotError that says why it never
            was; None where the head is this machine, so that nothing has to be kept open.
    """

    port: int
    is_open: Callable[[], bool] | None = None


@runtime_checkable
class Forwarding(Protocol):
    """The ports of a head's loopback address can be reached from this machine."""

    def forward(
        self, name: str, port: int, local: int | None, progress: Progress
    ) -> AbstractContextManager[Forward]:
        """Leads to a port of a cluster's head while the block lasts.

        Args:
            name: the stack's name.
            port: the port on the head.
            local: the port here; None takes the same number if it is free, or any.
            progress: called with a line for each thing that is waited for.

        Raises:
            UsageError: nothing listens on the head's port, or the local one cannot be had.
        """
        ...


def here(name: str, port: int, local: int | None) -> Forward:
    """A port of a head that is this machine.

    Raises:
        UsageError: nothing listens there, or another number is wished.
    """
    if local not in (None, port):
        raise UsageError(
            f"the head of {name!r} is this machine, so its port {port} cannot be {local} here: "
            f"leave out :{local}"
        )
    try:
        socket.create_connection((LOOPBACK, port), timeout=1).close()
    except OSError:
        raise nothing_listens(name, port) from None
    return Forward(port=port)


@contextlib.contextmanager
def through(to: Ssh, name: str, port: int, local: int | None) -> Iterator[Forward]:
    """A port of a head that SSH reaches, while the block lasts.

    Raises:
        UsageError: nothing listens there, or the local port is taken.
        SunspotError: the head cannot be reached.
    """
    if local is not None and not port_is_free(local):
        raise taken(port, local)
    try:
        to.read("bash", "-c", f"exec 3<>/dev/tcp/{LOOPBACK}/{port}")
    except RemoteCommandError:
        raise nothing_listens(name, port) from None
    with tempfile.TemporaryDirectory(prefix="sunspot-forward-") as folder:
        tunnel = Tunnel(Path(folder) / "tunnel")  # so that its lock is in the folder too
        tunnel.folder.mkdir()
        try:
            found = tunnel.open(to, port, preferred=local, lasting=False)
            if local not in (None, found):  # another process was faster
                raise taken(port, local)
            yield Forward(port=found, is_open=lambda: _is_open(tunnel, to))
        finally:
            tunnel.close()


def _is_open(tunnel: Tunnel, to: Ssh) -> bool:
    """Whether the tunnel is open.

    Raises:
        SunspotError: the machine forwards no ports; sshd says so with the first connection.
    """
    if tunnel.is_refused():
        raise SunspotError(
            f"sshd of {to.called} forwards no ports (`AllowTcpForwarding no`, or a restriction of "
            "your key there): allow it for your user, or use sunspot ssh"
        )
    return tunnel.is_open()


def nothing_listens(name: str, port: int) -> UsageError:
    """The error for a port of a head on which nobody listens."""
    return UsageError(
        f"nothing listens on port {port} of the head of {name!r}, on {LOOPBACK}. Start what is to "
        "listen there first, on the head"
    )


def taken(port: int, local: int | None) -> UsageError:
    """The error for a port of this machine that cannot be had."""
    return UsageError(
        f"port {local} of this machine is taken; give another, {port}:LOCAL, or only {port} to "
        "have a free one chosen"
    )
