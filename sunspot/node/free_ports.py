"""Free TCP ports of this machine."""

from __future__ import annotations

import random
import socket

# Below Linux's ephemeral range (32768-60999), so that no outgoing connection can take a port
# between our choosing it and Ray binding it, and outside Ray's worker ports (10002-19999).
PORT_RANGE = range(20_000, 32_000)


def free_port(taken: set[int]) -> int:
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
