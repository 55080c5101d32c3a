"""What `sunspot ssh` passes on between this terminal and the head's pod."""

from __future__ import annotations

import io
import select
import socket
import sys
import threading
from types import SimpleNamespace

import pytest
from websocket import WebSocketConnectionClosedException

from sunspot.targets.kubernetes import shell

SENT = bytes(range(256)) * 40_000  # 10 MB: more than a connection holds on its way


class Connection:
    """The command `cat` at the other end of a socket, which reads only what it can write."""

    def __init__(self) -> None:
        here, there = socket.socketpair()
        self.sock = SimpleNamespace(sock=here)
        self.received, self.is_closed = b"", False
        self.other = threading.Thread(target=self._cat, args=(there,))
        self.other.start()

    def _cat(self, there: socket.socket) -> None:
        with there:
            while data := there.recv(shell.PIECE):
                there.sendall(data)

    def is_open(self) -> bool:
        return not self.is_closed

    def update(self, timeout: float) -> None:
        while select.select([self.sock.sock], [], [], timeout)[0]:
            data = self.sock.sock.recv(65_536)
            self.received += data
            if not data:
                self.is_closed = True
                return

    def read_channel(self, channel: int) -> bytes:
        data = self.received if channel == shell._STDOUT else b""
        if data:
            self.received = b""
        return data

    def write_channel(self, _channel: int, data: bytes) -> None:
        self.sock.sock.sendall(data)

    def close_channel(self, _channel: int) -> None:
        self.sock.sock.shutdown(socket.SHUT_WR)


class Refusing(Connection):
    """A command that reads nothing, says something and ends: the server resets the connection."""

    def _cat(self, there: socket.socket) -> None:
        there.sendall(b"said")
        there.close()

    def update(self, timeout: float) -> None:
        super().update(timeout)
        if self.is_closed:
            self.is_closed = False
            raise WebSocketConnectionClosedException

    def close(self) -> None:
        self.is_closed = True


@pytest.mark.timeout(60)
def test_a_command_that_ends_before_it_has_read_all(tmp_path, monkeypatch):
    assert passed_on(Refusing(), tmp_path, monkeypatch) == b"said"


@pytest.mark.timeout(60)
def test_a_command_that_answers_while_it_reads(tmp_path, monkeypatch):
    assert passed_on(Connection(), tmp_path, monkeypatch) == SENT


def passed_on(connection, tmp_path, monkeypatch):
    """What comes back of a file."""
    file = tmp_path / "sent"
    file.write_bytes(SENT)
    out = io.TextIOWrapper(io.BytesIO())
    with file.open() as stdin:
        monkeypatch.setattr(sys, "stdin", stdin)
        monkeypatch.setattr(sys, "stdout", out)
        shell._pass_on(connection, has_terminal=False)
    connection.other.join()
    connection.sock.sock.close()
    return out.buffer.getvalue()
