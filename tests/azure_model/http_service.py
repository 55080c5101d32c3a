"""The HTTP server that each of Azure's services is answered by here."""

import contextlib
import json
import ssl
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

# How often a server looks whether it is to stop.
_STOP_POLL_S = 0.02


@dataclass(frozen=True, kw_only=True)
class Request:
    """What a client asked. `query` has the first value of each name."""

    method: str
    path: str
    query: Mapping[str, str]
    headers: Message
    body: bytes

    @property
    def form(self) -> Mapping[str, str]:
        """The fields of a body that is a form, the first value of each name."""
        return _first_values(self.body.decode())


@dataclass(frozen=True)
class Reply:
    """The answer. `body` is sent as it is where it is text, and as JSON otherwise."""

    status: int
    body: Any = None
    headers: dict[str, str] = field(default_factory=dict)


class Handler(BaseHTTPRequestHandler):
    """Reads each request to its end and sends what `respond` says; prints nothing."""

    def respond(self, request: Request) -> Reply | None:
        """The answer to a request; None where it has been sent already."""
        raise NotImplementedError

    def handle(self) -> None:
        with contextlib.suppress(ConnectionError):  # the client did not wait for the answer
            super().handle()

    def log_message(self, format: str, *arguments: Any) -> None:  # noqa: A002 - its name there
        pass

    def _do(self) -> None:
        url = urlsplit(self.path)
        length = int(self.headers.get("Content-Length") or 0)
        reply = self.respond(
            Request(
                method=self.command,
                path=url.path,
                query=_first_values(url.query),
                headers=self.headers,
                body=self.rfile.read(length),
            )
        )
        if reply is not None:
            self._send(reply)

    do_GET = do_HEAD = do_POST = do_PUT = do_PATCH = do_DELETE = _do  # noqa: N815 - http.server's

    def _send(self, reply: Reply) -> None:
        is_text = isinstance(reply.body, str)
        text = reply.body if is_text else json.dumps(reply.body)
        data = b"" if reply.body is None else text.encode()
        kind = "text/plain" if is_text else "application/json"
        if "Date" in reply.headers:
            self.send_response_only(reply.status)
        else:
            self.send_response(reply.status)
        for name, value in ({"Content-Type": f"{kind}; charset=utf-8"} | reply.headers).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)


@contextlib.contextmanager
def serving(
    answer: Callable[[Request], Reply],
    host: str = "127.0.0.1",
    port: int = 0,
    tls: ssl.SSLContext | None = None,
) -> Iterator[str]:
    """Answers over HTTP until the block ends; yields the URL. Port 0 takes a free one.

    With `tls` it is HTTPS, at the name "localhost".
    """

    class Answering(Handler):
        def respond(self, request: Request) -> Reply:
            return answer(request)

    server = ThreadingHTTPServer((host, port), Answering)
    if tls is not None:
        server.socket = tls.wrap_socket(
            server.socket, server_side=True, do_handshake_on_connect=False
        )
    with running(server):
        where = f"{host if tls is None else 'localhost'}:{server.server_port}"
        yield f"{'http' if tls is None else 'https'}://{where}"


@contextlib.contextmanager
def running(server: ThreadingHTTPServer) -> Iterator[None]:
    """The server answers in a thread of its own, and is closed when the block ends."""
    thread = threading.Thread(
        target=server.serve_forever, kwargs={"poll_interval": _STOP_POLL_S}, daemon=True
    )
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _first_values(query: str) -> dict[str, str]:
    return {name: values[0] for name, values in parse_qs(query).items()}
