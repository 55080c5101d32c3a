"""The stand-in of Kubernetes' API (kubernetes_api.py) on the loopback: HTTP and web sockets."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import yaml
from kubernetes_api import CUT_OFF, LOST, KubernetesApi, RefusalError

TOKEN = "kubernetes-token"
TOO_MANY = 429

# What a kubelet says of a port on which nothing listens (containerd, portforward).
REFUSED = "connect: connection refused"


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    # An answer is sent in parts, and each next one would wait 40 ms for the client.
    disable_nagle_algorithm = True
    api: KubernetesApi

    def do_GET(self) -> None:
        self._answered(self._get)

    def do_POST(self) -> None:
        self._answered(lambda path, query: self.api.post(path, self._body(), query))

    def do_PATCH(self) -> None:
        self._answered(lambda path, _query: self.api.patch(path, self._body()))

    def do_DELETE(self) -> None:
        self._answered(lambda path, _query: self.api.delete(path, self._body()))

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        pass

    def _body(self) -> Any:
        return json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)) or b"{}")

    def _answered(self, call: Callable[[str, dict[str, str]], Any]) -> None:
        parts, trouble = urlsplit(self.path), None
        self.api.seen.append((self.command, parts.path))
        try:
            if self.headers.get("Authorization") != f"Bearer {TOKEN}":
                self._body()
                raise RefusalError(401, "Unauthorized", "Unauthorized")
            with self.api.lock:
                trouble = self.api.trouble(self.command, parts.path)
                if trouble not in (None, LOST, CUT_OFF):
                    self._body()
                    raise RefusalError(trouble, "", "the server is overloaded, try again later")
                found = call(parts.path, dict(parse_qsl(parts.query)))
            found = self.api.answers.get(parts.path, found)
            if trouble == LOST:
                self.close_connection = True
                return
            if callable(found):
                found()
                return
            text, code = found if isinstance(found, str) else json.dumps(found), 200
        except RefusalError as refusal:
            status = {
                "kind": "Status",
                "status": "Failure",
                "message": str(refusal),
                "reason": refusal.reason,
                "code": refusal.code,
            }
            text, code = json.dumps(status), refusal.code
        body = text.encode()
        self.send_response(code)
        if code == TOO_MANY:  # as API Priority and Fairness answers (apiserver, filters)
            self.send_header("Retry-After", "1")
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body[:-1] if trouble == CUT_OFF else body)
        self.close_connection = trouble == CUT_OFF

    def _get(self, path: str, query: dict[str, str]) -> Any:
        words = path.split("/")
        if words[-1] == "portforward":
            self.api.authorize("get", path)
            return lambda: self._forward(int(query["ports"]))
        if words[-1] == "log":
            return self.api.logs.get(words[-2], "")
        return self.api.get(path, query)

    def _forward(self, port: int) -> None:
        """A web socket whose first channel is the port's data, and whose second its errors."""
        key = self.headers["Sec-WebSocket-Key"] + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
        accept = base64.b64encode(hashlib.sha1(key.encode()).digest()).decode()  # noqa: S324
        self.send_response(101)
        for name, value in {
            "Upgrade": "websocket",
            "Connection": "Upgrade",
            "Sec-WebSocket-Accept": accept,
            "Sec-WebSocket-Protocol": "v4.channel.k8s.io",
        }.items():
            self.send_header(name, value)
        self.end_headers()
        self.close_connection = True
        for channel in (0, 1):
            self._send(channel, struct.pack("<H", port))
        if port not in self.api.head_ports:
            self._send(1, f"failed to connect to localhost:{port}: {REFUSED}".encode())
            return
        with socket.create_connection(("127.0.0.1", self.api.head_ports[port])) as to:
            back = threading.Thread(target=self._back, args=(to,), daemon=True)
            back.start()
            with contextlib.suppress(OSError, ValueError, struct.error):
                while data := self._receive():
                    to.sendall(data[1:])
            with contextlib.suppress(OSError):
                to.shutdown(socket.SHUT_RDWR)
            back.join()

    def _back(self, to: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := to.recv(65_536):
                self._send(0, data)
            self.wfile.write(b"\x88\x02\x03\xe8")
            self.wfile.flush()

    def _send(self, channel: int, data: bytes) -> None:
        payload = bytes([channel]) + data
        self.wfile.write(struct.pack("!BBQ", 0x82, 127, len(payload)) + payload)
        self.wfile.flush()

    def _receive(self) -> bytes:
        """The next message of the client, whose frames are masked; empty at its end."""
        first, length = struct.unpack("!BB", self.rfile.read(2))
        length &= 0x7F
        if length == 126:
            (length,) = struct.unpack("!H", self.rfile.read(2))
        elif length == 127:
            (length,) = struct.unpack("!Q", self.rfile.read(8))
        mask, data = self.rfile.read(4), self.rfile.read(length)
        plain = bytes(byte ^ mask[at % 4] for at, byte in enumerate(data))
        return b"" if first & 0x0F == 8 else plain


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Says nothing: clients may go away at any time."""


@contextlib.contextmanager
def served(api: KubernetesApi) -> Iterator[int]:
    """Serves an API while the block lasts; yields the port."""
    bound = type("BoundHandler", (_Handler,), {"api": api})
    with _Server(("127.0.0.1", 0), bound) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server.server_port
        finally:
            server.shutdown()
            thread.join()


def write_kubeconfig(file: Path, port: int, *, token: str = TOKEN, current: str = "here") -> None:
    """A kubeconfig with the contexts "here" and "elsewhere"; nothing answers at the latter."""
    clusters = {"here": port, "elsewhere": 1}
    file.write_text(
        yaml.safe_dump(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "current-context": current,
                "clusters": [
                    {"name": name, "cluster": {"server": f"http://127.0.0.1:{number}"}}
                    for name, number in clusters.items()
                ],
                "users": [{"name": "ann", "user": {"token": token}}],
                "contexts": [
                    {"name": name, "context": {"cluster": name, "user": "ann"}} for name in clusters
                ],
            }
        )
    )
