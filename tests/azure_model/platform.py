"""What virtual machines ask Azure, at the addresses where they ask: in their own network.

Plain HTTP at the metadata address; TLS for the vault and for the container registry, which is
Debian's `docker-registry` behind the exchange of tokens that Azure puts in front of its own.
"""

import contextlib
import http.client
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from http.server import ThreadingHTTPServer

from azure_model.certificate import Certificate
from azure_model.http_service import Handler, Reply, Request, running
from azure_model.imds import ADDRESS, FakeAzure

HOP_BY_HOP = frozenset({"connection", "transfer-encoding"})
PULL_S = 60.0


@dataclass(frozen=True, kw_only=True)
class Platform:
    """Azure as each machine sees it, by the machine's address; and docker-registry's HOST:PORT.

    In the context of `entered` the calling thread is in the machines' network. `blobs` gets the
    path of each configuration and layer of an image that a machine downloads.
    """

    machines: Mapping[str, FakeAzure]
    registry: str
    entered: Callable[[], contextlib.AbstractContextManager[None]]
    blobs: list[str] = field(default_factory=list)


@contextlib.contextmanager
def serving(platform: Platform, certificate: Certificate) -> Iterator[None]:
    """The metadata service at its own address; vault and registry by TLS at the gateways."""
    with platform.entered():
        plain = ThreadingHTTPServer((ADDRESS, 80), _services(platform))
        secure = ThreadingHTTPServer(("", 443), _services_and_images(platform))
    secure.socket = certificate.context().wrap_socket(
        # A client that is slow to shake hands holds up only its own thread.
        secure.socket,
        server_side=True,
        do_handshake_on_connect=False,
    )
    with running(plain), running(secure):
        yield


def _services(platform: Platform) -> type[Handler]:
    class Services(Handler):
        protocol_version = "HTTP/1.1"

        def respond(self, request: Request) -> Reply | None:
            return platform.machines[self.client_address[0]].answer(request)

    return Services


def _services_and_images(platform: Platform) -> type[Handler]:
    class ServicesAndImages(_services(platform)):
        def respond(self, request: Request) -> Reply | None:
            if not request.path.startswith("/v2/"):
                return super().respond(request)
            self._pass_on()
            return None

        def _pass_on(self) -> None:
            """docker-registry's answer, as it comes."""
            if self.command == "GET" and "/blobs/" in self.path:
                platform.blobs.append(self.path)
            with platform.entered():
                upstream = http.client.HTTPConnection(platform.registry, timeout=PULL_S)
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

    return ServicesAndImages
