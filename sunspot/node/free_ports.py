"""Free TCP ports of this machine."""

from __future__ import annotations

import contextlib
import random
import socket
from collections.abc import Container

# Below Linux's ephemeral range (32768-60999), so that no outgoing connection can take a port
# between our choosing it and Ray binding it, and outside Ray's worker ports (10002-19999).
PORT_RANGE = range(20_000, 32_000)


class PortClaims(contextlib.ExitStack):
    """Ports that no other command of this machine can choose as long as this is open.

    Between choosing a port and listening on it lie seconds, in which another user, or a command
    with another state directory, may choose it too. A claim is an abstract Unix socket: it has no
    file, it belongs to the same network namespace as the port, and it ends with its process.
    """

    def take(self, port: int) -> bool:
        """Claims a port; False if it is not free, or somebody else has claimed it."""
        with contextlib.ExitStack() as unless_taken:
            claim = unless_taken.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
            try:
                claim.bind(f"\0sunspot-port-{port}")
            except OSError:
                return False
            if not port_is_free(port):
                return False
            self.push(unless_taken.pop_all())
        return True


def free_port(taken: Container[int]) -> int:
    """A TCP port that nothing listens on and that is not in `taken`, chosen at random.

    The choice is random because clusters of other users and state directories choose too.

    Raises:
        OSError: every port of the range is taken.
    """
    candidates = random.sample(PORT_RANGE, k=len(PORT_RANGE))
    for port in candidates:
        if port not in taken and port_is_free(port):
            return port
    raise OSError(f"no free TCP port between {PORT_RANGE.start} and {PORT_RANGE.stop - 1}")


def port_is_free(port: int) -> bool:
    """True if a server could bind this TCP port now, on all addresses of this machine."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("", port))
        except OSError:
            return False
    return True
