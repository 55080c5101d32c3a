"""What `sunspot ssh` passes on between this terminal and the head's pod."""

from __future__ import annotations

import io
import os
import socket
import sys
import threading

import pytest
from typing_extensions import Buffer
from websocket import WebSocket

from sunspot.targets.kubernetes import shell

SUCCESS = b'{"status": "Success"}'
CLOSED = 255  # the channel on which one says that another is closed
SENT = bytes(range(256)) * 40_000  # 10 MB: more than a connection holds on its way


class Connection:
    """The command `cat` at the other end of a WebSocket, which reads only what it can write."""

    def __init__(self) -> None:
        here, there = map(_web, socket.socketpair())
        self.sock = here
        self.other = threading.Thread(target=self._run, args=(there,))
        self.other.start()

    def _run(self, there: WebSocket) -> None:
        while (message := there.recv_data()[1])[0] == shell._STDIN:
            there.send_binary(bytes([shell._STDOUT]) + message[1:])
        there.send_binary(bytes([shell._ERROR]) + SUCCESS)
        there.send_close()

    def write_channel(self, channel: int, data: bytes) -> None:
        self.sock.send_binary(bytes([channel]) + data)

    def close_channel(self, channel: int) -> None:
        self.sock.send_binary(bytes([CLOSED, channel]))


def _web(one: socket.socket) -> WebSocket:
    web = WebSocket()
    web.sock, web.connected = one, True
    return web


class Refusing(Connection):
    """A command that reads nothing, says something and ends: the server resets the connection."""

    def _run(self, there: WebSocket) -> None:
        there.send_binary(bytes([shell._STDOUT]) + b"said")
        there.shutdown()


class Stdout(io.BytesIO):
    """Counts what is written at once."""

    largest = 0

    def write(self, data: Buffer, /) -> int:
        self.largest = max(self.largest, memoryview(data).nbytes)
        return super().write(data)


@pytest.mark.timeout(60)
def test_a_command_that_ends_before_it_has_read_all(tmp_path, monkeypatch):
    out = Stdout()
    assert passed_on(Refusing(), out, tmp_path, monkeypatch) == b""
    assert out.getvalue() == b"said"


@pytest.mark.timeout(60)
def test_a_command_that_answers_while_it_reads(tmp_path, monkeypatch):
    out = Stdout()
    assert passed_on(Connection(), out, tmp_path, monkeypatch) == SUCCESS
    assert out.getvalue() == SENT
    assert out.largest <= shell.READ, "it is shown as it comes"


@pytest.mark.parametrize(
    ("status", "code"),
    [
        (SUCCESS, 0),
        (b'{"status": "Failure", "details": {"causes": [{"message": "3"}]}}', 3),
    ],
)
def test_the_exit_code_is_the_commands(status, code):
    assert shell._code(status) == code


@pytest.mark.parametrize(
    ("status", "said"),
    [
        (b'{"status": "Failure", "message": "no such container"}', "no such container"),
        (b"", "broke off"),
        (b"<html>", "broke off"),
        (b'["Success"]', "broke off"),
    ],
)
def test_where_there_is_no_exit_code_it_is_255_and_why(status, said):
    with pytest.raises(shell.NoExitCodeError, match=said) as raised:
        shell._code(status)
    assert raised.value.exit_code == 255


def passed_on(connection, out, tmp_path, monkeypatch):
    """What is said of the end; the command gets a file, and its output goes to `out`."""
    file = tmp_path / "sent"
    file.write_bytes(SENT)
    with file.open() as stdin:
        monkeypatch.setattr(sys, "stdin", stdin)
        monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(out, write_through=True))
        status = shell._pass_on(connection, has_terminal=False)
    connection.other.join()
    connection.sock.shutdown()
    return status


class Resized(Connection):
    """A program that ends when its terminal has had two sizes."""

    def _run(self, there: WebSocket) -> None:
        self.sizes = [there.recv_data()[1] for _ in range(2)]
        there.send_binary(bytes([shell._ERROR]) + SUCCESS)
        there.send_close()


@pytest.mark.timeout(60)
def test_a_program_there_hears_of_the_terminals_size(monkeypatch):
    sizes, larger = [os.terminal_size((80, 24))], os.terminal_size((100, 30))
    monkeypatch.setattr(os, "get_terminal_size", lambda: sizes.pop(0) if sizes else larger)
    monkeypatch.setattr(shell, "SIZE_POLL_S", 0.01)
    connection, (silent, other) = Resized(), socket.socketpair()
    with silent, other:
        monkeypatch.setattr(sys, "stdin", silent)
        assert shell._pass_on(connection, has_terminal=True) == SUCCESS
    connection.other.join()
    connection.sock.shutdown()
    assert connection.sizes == [
        bytes([shell._RESIZE]) + b'{"Width":80,"Height":24}',
        bytes([shell._RESIZE]) + b'{"Width":100,"Height":30}',
    ]


@pytest.mark.timeout(60)
def test_a_size_that_nobody_takes_any_more_ends_nothing(monkeypatch):
    monkeypatch.setattr(os, "get_terminal_size", lambda: os.terminal_size((80, 24)))
    connection, (silent, other) = Refusing(), socket.socketpair()
    connection.other.join()
    with silent, other:
        monkeypatch.setattr(sys, "stdin", silent)
        assert shell._pass_on(connection, has_terminal=True) == b""


@pytest.mark.timeout(60)
def test_a_stdin_that_cannot_be_read_is_at_its_end(tmp_path, monkeypatch):
    """As below `nohup`, which opens it for writing only."""
    connection = Connection()
    with (tmp_path / "written").open("w") as stdin:
        monkeypatch.setattr(sys, "stdin", stdin)
        assert shell._pass_on(connection, has_terminal=False) == SUCCESS
    connection.other.join()
    connection.sock.shutdown()
