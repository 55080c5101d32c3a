"""A worker's traffic over HTTP, of which a counting proxy sees what would pass the NAT gateway.

A subnet's service endpoints lead past the proxy, as their routes do past the gateway. Docker Hub
sends an image's layers itself; a registry of Azure's answers with where in Storage they are.
"""

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import requests
from azure_model.http_service import Reply, Request, serving

LAYERS = 8
LAYER_BYTES = 2_000_000
RESULT_BYTES = 1_000_000
MANIFEST_BYTES = 2_000
# The services that have endpoints, of those that a worker asks for bytes.
ENDPOINTS = {"storage": "Microsoft.Storage", "registry": "Microsoft.ContainerRegistry"}


@dataclass
class Gateway:
    """What has passed: bodies of requests and of answers."""

    passed: int = 0

    def answer(self, request: Request) -> Reply:
        """Passes a request on to the host that it names."""
        url = f"http://{request.headers['Host']}{request.path}"
        said = _asked(request.method, url, request.body)
        self.passed += len(request.body) + len(said.content)
        kept = {"Location": said.headers["Location"]} if said.is_redirect else {}
        return Reply(said.status_code, said.text, kept)


def _asked(method: str, url: str, body: bytes, proxy: str | None = None) -> requests.Response:
    with requests.Session() as session:
        session.trust_env = False  # this machine may have a proxy of its own
        session.proxies = {} if proxy is None else {"http": proxy}
        return session.request(method, url, data=body, allow_redirects=False, timeout=60)


def _hub(request: Request) -> Reply:
    size = MANIFEST_BYTES if "/manifests/" in request.path else LAYER_BYTES
    return Reply(200, "x" * size)


def _storage(request: Request) -> Reply:
    return Reply(201) if request.method == "PUT" else Reply(200, "x" * LAYER_BYTES)


@dataclass(frozen=True)
class Worker:
    """A worker in a subnet, as the program registers that."""

    subnet: Mapping[str, Any]
    services: Mapping[str, str]
    proxy: str

    def ask(self, method: str, url: str, body: str = "") -> None:
        """Asks a service, and where that sends it, each by the route that the subnet has."""
        endpoints = {one["service"] for one in self.subnet.get("serviceEndpoints", [])}
        while True:
            (name,) = [name for name, root in self.services.items() if url.startswith(f"{root}/")]
            past = ENDPOINTS.get(name) in endpoints
            said = _asked(method, url, body.encode(), None if past else self.proxy)
            said.raise_for_status()
            if not said.is_redirect:
                return
            url = said.headers["Location"]

    def live(self, image: str) -> None:
        """Pulls its image, and writes a result."""
        host, _, name = image.partition("/")
        registry = self.services["registry" if host.endswith(".azurecr.io") else "hub"]
        self.ask("GET", f"{registry}/v2/{name.partition(':')[0]}/manifests/1")
        for number in range(LAYERS):
            self.ask("GET", f"{registry}/v2/{name.partition(':')[0]}/blobs/{number}")
        self.ask("PUT", f"{self.services['storage']}/results/checkpoint", "x" * RESULT_BYTES)


@contextlib.contextmanager
def life_of(subnet: Mapping[str, Any], image: str) -> Iterator[Gateway]:
    """The gateway after the life of one worker with this image."""
    gateway = Gateway()
    with contextlib.ExitStack() as stack:
        storage = stack.enter_context(serving(_storage))

        def registry(request: Request) -> Reply:
            if "/manifests/" in request.path:
                return Reply(200, "x" * MANIFEST_BYTES)
            return Reply(307, None, {"Location": f"{storage}{request.path}"})

        services = {
            "hub": stack.enter_context(serving(_hub)),
            "registry": stack.enter_context(serving(registry)),
            "storage": storage,
        }
        proxy = stack.enter_context(serving(gateway.answer))
        Worker(subnet, services, proxy).live(image)
        yield gateway
