"""Commands in the head's pod, at this terminal, through Kubernetes' `exec`."""

from __future__ import annotations

import contextlib
import json
import os
import select
import shlex
import ssl
import sys
import termios
import tty
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from sunspot.errors import SunspotError, UsageError
from sunspot.targets.kubernetes.forwarder import interrupted
from sunspot.targets.kubernetes.objects import Cluster
from sunspot.targets.kubernetes.pods import RAY_CONTAINER

READ = 32_768
# What is sent at once: a connection that takes something at all takes so much without waiting.
PIECE = 4_096
# How soon a program there hears that the terminal has another size.
SIZE_POLL_S = 0.5
# The channels of a command (kubernetes.io, "WebSocket" in the API's concepts; remotecommand v5).
_STDIN, _STDOUT, _STDERR, _ERROR, _RESIZE = range(5)


class NoExitCodeError(SunspotError):
    """The command did not run, or nobody knows how it ended."""

    exit_code = 255  # as ssh's


@dataclass(frozen=True)
class HeadShell:
    """The shell in Ray's container of the head."""

    cluster: Cluster
    stack: str

    def run(self, remote: Sequence[str]) -> int:
        """Runs a shell, or a command, at this terminal; returns its exit code.

        One word is a line for the container's shell, several are a command with its arguments.
        """
        line = list(remote) if len(remote) < 2 else [shlex.join(remote)]
        command = ["/bin/bash", "-c", *line] if line else ["/bin/bash"]
        has_terminal = sys.stdin is not None and sys.stdin.isatty() and sys.stdout.isatty()
        opened = self._open(command, tty=has_terminal)
        with _raw() if has_terminal else contextlib.nullcontext():
            try:
                return _code(_pass_on(opened, has_terminal=has_terminal))
            finally:
                opened.close()

    def copy(self, source: str, destination: str) -> int:  # noqa: ARG002 - as the protocol has it
        """Copies nothing.

        Raises:
            UsageError: always; the message says how to do it.
        """
        raise UsageError(
            "files are not copied to pods: send them with a job (sunspot submit --working-dir), "
            "or write: tar c FILES | sunspot ssh "
            f"{self.stack} -- tar x -C /tmp"
        )

    def _open(self, command: Sequence[str], *, tty: bool) -> Any:
        from kubernetes.client import ApiClient, CoreV1Api
        from kubernetes.client.exceptions import ApiException
        from kubernetes.stream import stream

        head = self.cluster.head()
        if head is None:
            raise SunspotError(f"no pod of {self.cluster.names.cluster} is its head now")
        client = CoreV1Api(ApiClient(configuration=self.cluster.api.client.configuration))
        try:
            return stream(
                client.connect_get_namespaced_pod_exec,
                head.name,
                self.cluster.names.namespace,
                container=RAY_CONTAINER,
                command=list(command),
                stdin=True,
                stdout=True,
                stderr=not tty,
                tty=tty,
                binary=True,
                _preload_content=False,
            )
        except (ApiException, OSError) as error:
            interrupted(error)
            raise SunspotError(
                f"{self.cluster.api.place.called} could not run the command in {head.name}: "
                f"{' '.join(str(error).split())}"
            ) from error


def _pass_on(opened: Any, *, has_terminal: bool) -> bytes:
    """Passes on both ways until the command ends, or the connection breaks off.

    Returns:
        What Kubernetes says of the command's end, a Status in JSON; b"" if it says nothing.
    """
    web, way, status, told = opened.sock, opened.sock.sock, b"", b""
    given, wait_s = _Input(opened), SIZE_POLL_S if has_terminal else None
    while True:
        size = _size() if has_terminal else b""
        waits = given.waits or size != told
        # A command that answers while it reads stops reading where nobody takes its output.
        is_held = isinstance(way, ssl.SSLSocket) and way.pending() > 0  # which select does not see
        readable, writable, _ = select.select(
            [way, *given.sources], [way] if waits else [], [], 0 if is_held else wait_s
        )
        if is_held or way in readable:
            message = _message(web)
            if message is None:
                return status
            status += _shown(message)
        if writable and size != told:
            told = size
            with contextlib.suppress(*_broken()):  # as of what is typed
                opened.write_channel(_RESIZE, size)
        given.go_on(has_more=sys.stdin in readable, may_send=bool(writable) and given.waits)


def _size() -> bytes:
    """The terminal's size, as the command's end is told it; b"" if the terminal is gone."""
    try:
        size = os.get_terminal_size()
    except OSError:
        return b""
    return f'{{"Width":{size.columns},"Height":{size.lines}}}'.encode()


class _Input:
    """What goes from stdin to a command, a piece at a time."""

    def __init__(self, opened: Any) -> None:
        self._opened, self._waiting = opened, b""
        self._reads = sys.stdin is not None  # it may be closed
        if not self._reads:
            opened.close_channel(_STDIN)

    @property
    def sources(self) -> list[Any]:
        """Where more is to be read from now."""
        return [sys.stdin] if self._reads and not self._waiting else []

    @property
    def waits(self) -> bool:
        """Whether something has not been sent yet."""
        return bool(self._waiting)

    def go_on(self, *, has_more: bool, may_send: bool) -> None:
        """Sends a piece, and reads the next ones."""
        try:
            if may_send:
                self._opened.write_channel(_STDIN, self._waiting[:PIECE])
                self._waiting = self._waiting[PIECE:]
            if has_more:
                self._waiting = _read()
                self._reads = bool(self._waiting)
                if not self._reads:
                    self._opened.close_channel(_STDIN)
        except _broken():  # the command has ended; what it said is still to be read
            self._waiting, self._reads = b"", False


def _read() -> bytes:
    """What comes next on stdin; b"" at its end, or where it cannot be read, as below `nohup`."""
    with contextlib.suppress(OSError):
        return os.read(sys.stdin.fileno(), READ)
    return b""


def _broken() -> tuple[type[Exception], ...]:
    from websocket import WebSocketException

    return WebSocketException, OSError


def _message(web: Any) -> bytes | None:
    """What came next: its channel, then its content; b"" if it is none, None at the end.

    The package's own reader would only return when nothing more comes, and keep all of it.
    """
    from websocket import ABNF

    try:
        kind, frame = web.recv_data_frame(control_frame=True)
    except _broken():
        return None
    if kind == ABNF.OPCODE_CLOSE:
        return None
    return frame.data if kind in (ABNF.OPCODE_BINARY, ABNF.OPCODE_TEXT) else b""


def _shown(message: bytes) -> bytes:
    """Shows output; returns what is said of the command's end, if the message is of that."""
    channel, data = message[:1], message[1:]
    if channel in (bytes([_STDOUT]), bytes([_STDERR])):
        stream = sys.stdout if channel == bytes([_STDOUT]) else sys.stderr
        stream.buffer.write(data)
        stream.flush()
    return data if channel == bytes([_ERROR]) else b""


def _code(status: bytes) -> int:
    """The command's exit code.

    Raises:
        NoExitCodeError: Kubernetes gives none.
    """
    why = "the connection to the head's pod broke off"
    with contextlib.suppress(AttributeError, TypeError, KeyError, IndexError, ValueError):
        said = json.loads(status)
        why = said.get("message") or why
        return 0 if said["status"] == "Success" else int(said["details"]["causes"][0]["message"])
    raise NoExitCodeError(why)


@contextlib.contextmanager
def _raw() -> Iterator[None]:
    """The terminal without its own treatment of keys, as a shell elsewhere needs it."""
    before = termios.tcgetattr(sys.stdin)
    tty.setraw(sys.stdin)
    try:
        yield
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)
