"""Connections to a head through Kubernetes' API: what breaks off ends; logins are renewed."""

from __future__ import annotations

import socket
import struct
from typing import Any

import pytest
from kubernetes.client.exceptions import ApiException
from kubernetes.stream.ws_client import PortForward
from websocket import WebSocket

from sunspot.errors import SunspotError
from sunspot.targets.kubernetes import forwarder
from sunspot.targets.kubernetes.forwarder import NoHeadError, Server

RESET = struct.pack("ii", 1, 0)  # a socket that is closed at once, with what it has


@pytest.fixture
def pair():
    """Both ends of a TCP connection."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        here = socket.create_connection(server.getsockname())
        there, _ = server.accept()
    with here, there:
        yield here, there


@pytest.mark.timeout(30)
def test_a_connection_that_the_server_resets_ends_on_this_side(pair):
    here, there = pair
    web = WebSocket()
    web.sock, web.connected = here, True
    opened: Any = PortForward(web, [8265])
    forwarder._end_when_broken(opened.websocket)
    there.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
    there.close()
    assert opened.socket(8265).recv(1) == b""


class Port:
    """A port of a head, for logins that are refused until they are renewed."""

    def __init__(self, error: SunspotError | None, renewed: Port | None = None) -> None:
        self.error, self.renewed = error, renewed

    def connect(self) -> str:
        if self.error is not None:
            raise self.error
        return "connected"

    def logged_in_again(self) -> Port:
        assert self.renewed is not None, "there is no need to log in again"
        return self.renewed


def served(port: Any) -> Server:
    server = Server(0, port)
    server.server_close()
    return server


def test_a_login_that_is_refused_is_read_again_and_kept():
    renewed = Port(None)
    server = served(Port(SunspotError("401"), renewed))
    assert server.connect() == "connected"
    assert server.to is renewed  # pyright: ignore[reportUnnecessaryComparison]


@pytest.mark.parametrize(
    "port",
    [Port(NoHeadError("none")), Port(SunspotError("401"), Port(SunspotError("401 again")))],
    ids=["no head", "still refused"],
)
def test_what_no_login_helps_is_told(port):
    server = served(port)
    with pytest.raises(SunspotError, match=r"none|again"):
        server.connect()
    assert server.to is port


@pytest.mark.parametrize("number", [KeyboardInterrupt, SystemExit])
def test_an_interrupt_that_the_package_hides_is_one(number):
    try:
        try:
            raise number
        except number:
            raise ApiException(status=0, reason="")  # noqa: B904 - as the package does
    except ApiException as error:
        with pytest.raises(number):
            forwarder.interrupted(error)
    forwarder.interrupted(ApiException(status=404))
