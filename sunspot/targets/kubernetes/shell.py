"""Commands in the head's pod, at this terminal, through Kubernetes' `exec`."""

from __future__ import annotations

import contextlib
import os
import select
import shlex
import sys
import termios
import tty
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from sunspot.errors import SunspotError, UsageError
from sunspot.targets.kubernetes.objects import Cluster
from sunspot.targets.kubernetes.pods import RAY_CONTAINER

READ = 32_768
# What is sent at once: a connection that takes something at all takes so much without waiting.
PIECE = 4_096
POLL_S = 0.05
_STDIN, _STDOUT, _STDERR, _RESIZE = 0, 1, 2, 4


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
                _pass_on(opened, has_terminal=has_terminal)
            finally:
                code = _code(opened)
        return code

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
            raise SunspotError(
                f"{self.cluster.api.place.called} could not run the command in {head.name}: "
                f"{' '.join(str(error).split())}"
            ) from error


def _pass_on(opened: Any, *, has_terminal: bool) -> None:
    """Passes on both ways until the command ends, or the connection breaks off."""
    from websocket import WebSocketException

    broken = (WebSocketException, OSError)
    if has_terminal:
        size = os.get_terminal_size()
        opened.write_channel(_RESIZE, f'{{"Width":{size.columns},"Height":{size.lines}}}'.encode())
    reads, waiting = sys.stdin is not None, b""  # stdin may be closed
    if not reads:
        opened.close_channel(_STDIN)
    while opened.is_open():
        # A command that answers while it reads stops reading where nobody takes its output.
        way = opened.sock.sock
        sources = [sys.stdin] if reads and not waiting else []
        sinks = [way] if waiting else []
        readable, writable, _ = select.select([way, *sources], sinks, [], POLL_S)
        try:
            opened.update(timeout=0)
        except broken:
            opened.close()
        _show(opened)
        if not opened.is_open():
            break
        if writable:
            try:
                opened.write_channel(_STDIN, waiting[:PIECE])
                waiting = waiting[PIECE:]
            except broken:  # the command has ended; what it said is still to be read
                waiting, reads = b"", False
        if sys.stdin in readable:
            waiting = os.read(sys.stdin.fileno(), READ)
            reads = bool(waiting)
            if not reads:
                opened.close_channel(_STDIN)
    _show(opened)


def _show(opened: Any) -> None:
    for channel, stream in ((_STDOUT, sys.stdout), (_STDERR, sys.stderr)):
        if data := opened.read_channel(channel):
            stream.buffer.write(data)
            stream.flush()


def _code(opened: Any) -> int:
    """The command's exit code; 255, as ssh's, where the connection broke off."""
    opened.close()
    try:
        return int(opened.returncode)
    except (TypeError, KeyError, IndexError, ValueError):
        return 255


@contextlib.contextmanager
def _raw() -> Iterator[None]:
    """The terminal without its own treatment of keys, as a shell elsewhere needs it."""
    before = termios.tcgetattr(sys.stdin)
    tty.setraw(sys.stdin)
    try:
        yield
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)
