"""What a node asks Azure, at the addresses where it asks: in the machines' network.

Plain HTTP at the metadata address; TLS, with a certificate of the test's own, for the vault and for
the container registry, which is Debian's `docker-registry` behind the exchange of tokens that Azure
puts in front of its own.
"""

import contextlib
import http.client
import json
import shutil
import ssl
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

from fake_imds import FakeAzure, access_token
from network import METADATA_ADDRESS, Network

MANAGEMENT = "https://management.azure.com/"
REFRESH_TOKEN = "refresh-me"
HOP_BY_HOP = frozenset({"connection", "transfer-encoding"})


@dataclass(frozen=True)
class Certificate:
    """A certificate that is its own authority."""

    file: Path
    key: Path

    @classmethod
    def create(cls, folder: Path, names: Sequence[str]) -> "Certificate":
        made = cls(folder / "certificate.pem", folder / "certificate.key")
        alternatives = ",".join(f"DNS:{name}" for name in names)
        subprocess.run(
            [
                *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt"),
                *("ec_paramgen_curve:prime256v1", "-nodes", "-days", "2", "-subj", "/CN=test"),
                *("-addext", f"subjectAltName={alternatives}"),
                *("-keyout", str(made.key), "-out", str(made.file)),
            ],
            check=True,
            capture_output=True,
        )
        return made

    def context(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.file, self.key)
        return context


@dataclass(frozen=True, kw_only=True)
class Platform:
    """Azure as each machine sees it, by the machine's address; and docker-registry's HOST:PORT."""

    machines: Mapping[str, FakeAzure]
    registry: str


@contextlib.contextmanager
def serving(platform: Platform, network: Network, certificate: Certificate) -> Iterator[None]:
    """The metadata service at its own address; vault and registry by TLS at the gateways."""
    with network.entered():
        plain = ThreadingHTTPServer((METADATA_ADDRESS, 80), _metadata(platform))
        secure = ThreadingHTTPServer(("", 443), _vault_and_registry(platform, network))
    secure.socket = certificate.context().wrap_socket(
        # A client that is slow to shake hands holds up its own thread alone.
        secure.socket,
        server_side=True,
        do_handshake_on_connect=False,
    )
    with running(plain), running(secure):
        yield


@contextlib.contextmanager
def running(server: ThreadingHTTPServer) -> Iterator[None]:
    """The server answers in a thread of its own, and is closed when the block ends."""
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def _do(self) -> None:
        self.respond(self.rfile.read(int(self.headers.get("Content-Length") or 0)).decode())

    do_GET = do_HEAD = do_POST = _do  # noqa: N815 - http.server's names

    def respond(self, body: str) -> None:
        raise NotImplementedError

    def ask(self, platform: Platform, body: str) -> None:
        """What Azure answers the machine that asks."""
        azure = platform.machines[self.client_address[0]]
        status, answer = azure.answer(self.command, self.path, self.headers, body)
        azure.requests.append((time.time(), self.command, self.path, status))
        self.send(status, answer)

    def send(self, status: int, answer: Any) -> None:
        data = (answer if isinstance(answer, str) else json.dumps(answer)).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *arguments: Any) -> None:  # noqa: A002
        pass


def _metadata(platform: Platform) -> type[_Handler]:
    class Metadata(_Handler):
        def respond(self, body: str) -> None:
            self.ask(platform, body)

    return Metadata


def _vault_and_registry(platform: Platform, network: Network) -> type[_Handler]:
    class VaultAndRegistry(_Handler):
        def respond(self, body: str) -> None:
            if self.path.startswith("/v2/"):
                self._pass_on()
            elif self.path == "/oauth2/exchange":
                self.send(*_exchanged(parse_qs(body)))
            else:
                self.ask(platform, body)

        def _pass_on(self) -> None:
            """docker-registry's answer, as it comes."""
            with network.entered():
                upstream = http.client.HTTPConnection(platform.registry, timeout=60)
                upstream.connect()
            with contextlib.closing(upstream):
                upstream.request(self.command, self.path, headers=dict(self.headers.items()))
                answer = upstream.getresponse()
                self.send_response(answer.status)
                for name, value in answer.getheaders():
                    if name.lower() not in HOP_BY_HOP:
                        self.send_header(name, value)
                self.end_headers()
                if self.command != "HEAD":
                    shutil.copyfileobj(answer, self.wfile)

    return VaultAndRegistry


def _exchanged(form: Mapping[str, list[str]]) -> tuple[int, Any]:
    """The registry's token for an access token of Azure's, as its oauth2/exchange gives it."""
    wanted = {"grant_type": ["access_token"], "access_token": [access_token(MANAGEMENT)]}
    if any(form.get(name) != value for name, value in wanted.items()):
        return 401, {"errors": [{"code": "UNAUTHORIZED"}]}
    return 200, {"refresh_token": REFRESH_TOKEN}
