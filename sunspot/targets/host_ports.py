"""TCP ports of this machine that a user wishes for: which can be had, and what has the others."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import psutil

from sunspot.errors import UsageError
from sunspot.node.free_ports import port_is_free

# Ray refuses lower ports, which need privileges (ray/_private/parameter.py, 2.60).
USER_PORTS = range(1024, 65_536)


def check_number(flag: str, port: int, ports: range = USER_PORTS) -> None:
    """Checks that a wished number is a port that a user may have.

    Args:
        flag: the flag that the wish was given with.
        port: the wish.
        ports: those that there are.

    Raises:
        UsageError: it is not.
    """
    if port not in ports:
        raise UsageError(f"{flag} {port} is not a port from {ports[0]} to {ports[-1]}")


def taken(flag: str, port: int, by: str) -> UsageError:
    """The error for a wished port that is taken; `by` says by what, as " by nginx", or is ""."""
    return UsageError(
        f"port {port} is taken{by}; give {flag} another, or leave it out to have a free one chosen"
    )


def taken_by(port: int) -> str:
    """What has a port, as far as this user may see it: " by nginx, pid 12", or ""."""
    for pid in listeners(port):
        if pid is None:
            return " by a process of another user"
        with contextlib.suppress(psutil.Error):
            return f" by {psutil.Process(pid).name()}, pid {pid}"
    return " by a cluster that is starting" if port_is_free(port) else ""


def listeners(port: int) -> list[int | None]:
    """The processes that listen on a port; None is one that this user may not see."""
    with contextlib.suppress(psutil.Error):
        return [pid for number, pid in listening() if number == port]
    return []


def listening() -> Iterator[tuple[int, int | None]]:
    """The TCP ports on which something listens, each with its process as in `listeners`."""
    for connection in psutil.net_connections("tcp"):
        if connection.status == psutil.CONN_LISTEN and connection.laddr:
            yield connection.laddr.port, connection.pid
