"""Ports of the head's container, which the host does not publish: `docker exec` leads there."""

from __future__ import annotations

import contextlib
import os
import socketserver
import subprocess
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

from sunspot.errors import SunspotError
from sunspot.node.prctl import end_with_parent
from sunspot.targets.compose.engine import Engine
from sunspot.targets.forwarding import Forward, nothing_listens, taken
from sunspot.targets.tunnel import LOOPBACK

# In the container: passes its standard input on to a port, and prints what comes back. Its two ends
# close one after the other, as those of a connection do; a minute after the first it gives up.
_PASS_ON = f"""
import os, socket, sys, threading
try:
    to = socket.create_connection(("{LOOPBACK}", int(sys.argv[1])))
except OSError:
    sys.exit("refused")
if sys.argv[2:] == ["look"]:
    sys.exit("accepted")

def send():
    while data := os.read(0, 65536):
        to.sendall(data)
    to.shutdown(socket.SHUT_WR)
    to.settimeout(60)

threading.Thread(target=send, daemon=True).start()
out = open(1, "wb")
while data := to.recv(65536):
    out.write(data)
    out.flush()
os._exit(0)
"""


@dataclass(frozen=True)
class HeadPorts:
    """The ports in the head's container."""

    engine: Engine
    container: str

    @contextlib.contextmanager
    def lead(self, name: str, port: int, local: int | None) -> Iterator[Forward]:
        """Leads from a port of this machine's loopback address to one of the head's.

        Args:
            name: the stack's name.
            port: the port in the container.
            local: the port here; None takes the same number if it is free, or any.

        Raises:
            UsageError: nothing listens there, or the local port is taken.
            SunspotError: the container runs nothing.
        """
        said = self.engine.run(*self._pass_on(port), "look").strip()
        if said.endswith("refused"):
            raise nothing_listens(name, port)
        if not said.endswith("accepted"):
            raise SunspotError(f"the head of {name!r} cannot be asked for its port {port}: {said}")
        with self._server(port, local) as server, _in_background(server), self._watch() as watch:
            yield Forward(port=server.server_address[1], is_open=lambda: watch.poll() is None)

    def _pass_on(self, port: int) -> tuple[str, ...]:
        return ("exec", "--interactive", self.container, "python", "-c", _PASS_ON, str(port))

    def _server(self, port: int, local: int | None) -> _Server:
        command = ["docker", *self._pass_on(port)]
        for wished in (port, 0) if local is None else (local,):
            with contextlib.suppress(OSError):
                return _Server(wished, command, self.engine.environment())
        raise taken(port, local)

    @contextlib.contextmanager
    def _watch(self) -> Iterator[subprocess.Popen[bytes]]:
        """A process that lives as long as the container runs, or the engine answers."""
        with _quiet(["docker", "wait", self.container], self.engine.environment()) as process:
            try:
                yield process
            finally:
                process.kill()


class _Server(socketserver.ThreadingTCPServer):
    """A port here; each connection to it becomes a process of the command."""

    # Not port_is_free and then bind: another process could be faster.
    allow_reuse_address = True
    daemon_threads = True

    def __init__(self, port: int, command: list[str], environment: dict[str, str]) -> None:
        self.command, self.environment = command, environment
        self._running: set[subprocess.Popen[bytes]] = set()
        self._ended = False
        self._lock = threading.Lock()
        super().__init__((LOOPBACK, port), _Connection)

    def lead(self, connection: int) -> None:
        """Connects a client, by the number of its socket, with a process of the command."""
        with self._lock:
            if self._ended:
                return
            process = _quiet(self.command, self.environment, connection)
            self._running.add(process)
        process.wait()
        with self._lock:
            self._running.discard(process)

    def server_close(self) -> None:
        """Ends every connection, too."""
        super().server_close()
        with self._lock:
            self._ended = True
            for process in self._running:
                process.kill()


class _Connection(socketserver.BaseRequestHandler):
    server: _Server  # pyright: ignore[reportIncompatibleVariableOverride]

    def handle(self) -> None:
        self.server.lead(self.request.fileno())


def _quiet(
    command: list[str], environment: dict[str, str], connection: int = subprocess.DEVNULL
) -> subprocess.Popen[bytes]:
    """Starts a command that sees no Ctrl-C, and ends with this process, by SIGKILL even."""
    return subprocess.Popen(
        command,
        env=environment,
        stdin=connection,
        stdout=connection,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        preexec_fn=partial(end_with_parent, os.getpid()),
    )


@contextlib.contextmanager
def _in_background(server: _Server) -> Iterator[None]:
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.1})
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        thread.join()
