"""Debian's image registry, over a folder that may be kept."""

import contextlib
import shutil
import socket
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import requests
import yaml

from machines.processes import server

# As Docker pushes it. Unasked, the registry would make an older form of it.
MANIFEST = "application/vnd.docker.distribution.manifest.v2+json"


@dataclass(frozen=True)
class Registry:
    """A registry that listens. `address` is `HOST:PORT`, as in an image's name."""

    address: str

    def reference(self, name: str) -> str:
        """The full name of an image such as `ray:2.60.0` here."""
        return f"{self.address}/{name}"

    def has(self, name: str) -> bool:
        """Whether an image such as `ray:2.60.0` was pushed."""
        return self._manifest(name).ok

    def digest(self, name: str) -> str:
        """The digest of an image such as `ray:2.60.0`. Raises HTTPError if it was not pushed."""
        answer = self._manifest(name)
        answer.raise_for_status()
        return answer.headers["Docker-Content-Digest"]

    def _manifest(self, name: str) -> requests.Response:
        repository, _, tag = name.rpartition(":")
        url = f"http://{self.address}/v2/{repository}/manifests/{tag}"
        return requests.head(url, headers={"Accept": MANIFEST}, timeout=60)


@contextlib.contextmanager
def registry(storage: Path, *, host: str = "127.0.0.1", port: int = 0) -> Iterator[Registry]:
    """A registry over `storage`, at `host`; at a free port where none is named.

    In a block of `network_of` it listens in that network, and only there.

    It speaks http: an engine takes that from a loopback address, and from addresses that it was
    told to (`--insecure-registry`).
    """
    storage.mkdir(parents=True, exist_ok=True)
    address = f"{host}:{port or free_port(host)}"
    folder = Path(tempfile.mkdtemp(prefix="registry-"))
    config = {
        "version": 0.1,
        "log": {"level": "warn"},
        "storage": {
            "filesystem": {"rootdirectory": str(storage.absolute())},
            "maintenance": {"uploadpurging": {"enabled": False}},
        },
        "http": {"addr": address, "secret": "not-a-secret"},
    }
    (folder / "config.yml").write_text(yaml.safe_dump(config))
    command = ["docker-registry", "serve", folder / "config.yml"]
    try:
        with server(command, folder / "log", ready=lambda: _answers(address)):
            yield Registry(address)
    finally:
        shutil.rmtree(folder)


def free_port(host: str) -> int:
    with socket.socket() as listener:
        listener.bind((host, 0))
        return listener.getsockname()[1]


def _answers(address: str) -> bool:
    try:
        return requests.get(f"http://{address}/v2/", timeout=5).ok
    except requests.ConnectionError:
        return False
