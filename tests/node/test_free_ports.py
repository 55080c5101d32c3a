"""Claims on ports: between a command that chooses a port and the server that listens on it."""

import socket
import subprocess
import sys

from sunspot.node.free_ports import PortClaims, free_port

HOLD = """
import sys
from sunspot.node.free_ports import PortClaims
with PortClaims() as claims:
    print(claims.take(int(sys.argv[1])), flush=True)
    sys.stdin.read()
"""


def test_a_port_can_be_claimed_once_and_again_when_the_claim_has_ended():
    port = free_port(set())
    with PortClaims() as first, PortClaims() as second:
        assert first.take(port)
        assert not second.take(port)
    with PortClaims() as third:
        assert third.take(port)


def test_a_claim_holds_against_another_process_and_ends_with_it():
    port = free_port(set())
    command = [sys.executable, "-c", HOLD, str(port)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "True\n"
        with PortClaims() as claims:
            assert not claims.take(port)
        other.kill()
        other.wait()
    with PortClaims() as claims:
        assert claims.take(port)


def test_what_is_in_use_cannot_be_claimed_and_stays_unclaimed():
    with socket.create_server(("127.0.0.1", 0)) as server, PortClaims() as claims:
        port = server.getsockname()[1]
        assert not claims.take(port)
        server.close()
        assert claims.take(port)


def test_a_claimed_port_can_be_listened_on():
    port = free_port(set())
    with PortClaims() as claims:
        assert claims.take(port)
        socket.create_server(("127.0.0.1", port)).close()
