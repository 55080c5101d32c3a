"""Who listens on a TCP port of this machine.

Between the choice of a port and the moment when Ray listens on it lie seconds, in which another
user of the machine may take it. A client then sends them the cluster's token: Ray's clients present
it to whatever answers.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from pathlib import Path

# proc(5), /proc/net/tcp: the state of a socket that listens.
_LISTENS = "0A"


class TakenError(Exception):
    """Another user's process listens on a port of this node."""


def listens(port: int) -> bool:
    """Whether a process of this user listens on a port of this machine."""
    return os.getuid() in _users({port})


def check(ports: Iterable[int]) -> None:
    """Returns if no other user's process listens on any of these ports.

    Raises:
        TakenError: one does.
    """
    if others := _users(set(ports)) - {os.getuid()}:
        named = ", ".join(map(str, sorted(others)))
        raise TakenError(f"user {named} has taken a port of this node meanwhile: start again")


def _users(ports: set[int]) -> set[int]:
    """The numbers of the users whose processes listen on one of these ports."""
    found = set()
    for table in ("tcp", "tcp6"):
        with contextlib.suppress(FileNotFoundError):  # a machine without IPv6
            for line in Path("/proc/net", table).read_text().splitlines()[1:]:
                _, local, _, state, *rest = line.split()
                if state == _LISTENS and int(local.rpartition(":")[2], 16) in ports:
                    found.add(int(rest[3]))
    return found
