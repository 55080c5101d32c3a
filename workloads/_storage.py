"""Where results go: a folder, an S3 bucket or an Azure Blob container, named by one URL.

    /mnt/results                                    a folder that every node has
    s3://bucket/folder                              AWS, or what AWS_ENDPOINT_URL names (MinIO ...)
    abfss://container@account.dfs.core.windows.net/folder
    az://container/folder                           the account is AZURE_STORAGE_ACCOUNT

Azure Blob is opened with the managed identity of the machine that opens it (AZURE_CLIENT_ID says
which), on AKS with that of the pod's service account, never with a key; a connection string in
AZURE_STORAGE_CONNECTION_STRING is for emulators such as Azurite.
"""

import os
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from pyarrow import fs

VARIABLE = "SUNSPOT_STORAGE"
"""The variable in the environment of a stack's nodes that holds the URL of its storage."""

CONNECTION_STRING = "AZURE_STORAGE_CONNECTION_STRING"
AZURE_SCHEMES = frozenset({"abfs", "abfss", "az"})
AZURE_DOMAIN = "core.windows.net"  # of Azure's public cloud
# The domains of Azure's clouds, and this machine, for emulators: no other server gets a token.
AZURE_DOMAINS = frozenset(
    {AZURE_DOMAIN, "core.usgovcloudapi.net", "core.chinacloudapi.cn", "localhost"}
)
# A wrong address should fail in seconds, not after the minutes that Arrow takes by default.
CONNECT_TIMEOUT_S, REQUEST_TIMEOUT_S, TRIES = 10, 60, 3


class StorageError(ValueError):
    """The storage cannot be used; the message names it and what to do."""


class NodeIdentityFileSystem(fs.AzureFileSystem):
    """Azure Blob as the identity of the machine that this object is on, after pickling too.

    Arrow's own class pickles the client ID, and a machine's metadata service knows only the
    identities of that machine: to the head's ID a worker's answers "400 Identity not found".
    """

    def __init__(self, account: str, domain: str) -> None:
        super().__init__(
            account,
            client_id=_client_id(),
            blob_storage_authority=f".blob.{domain}",
            dfs_storage_authority=f".dfs.{domain}",
        )
        self._place = account, domain

    def __reduce__(self) -> tuple[Any, ...]:
        """Return what makes it again; the identity is that of the machine that does."""
        return type(self), self._place


def _client_id() -> str | None:
    """With it Arrow asks the machine's metadata service only, without it any login that it finds.

    A pod's identity on AKS is not one of the machine: its login is the token in a file, which
    AKS's webhook names beside the client ID (Microsoft's "Workload identity on AKS").
    """
    if os.environ.get("AZURE_FEDERATED_TOKEN_FILE"):
        return None
    return os.environ.get("AZURE_CLIENT_ID") or None


@dataclass(frozen=True)
class Storage:
    """An Arrow filesystem, and the path in it that the URL names."""

    url: str
    filesystem: fs.FileSystem
    path: str

    def below(self, name: str) -> str:
        """Return the path of a file or folder in the storage."""
        return f"{self.path.rstrip('/')}/{name}"

    def read(self, name: str) -> bytes:
        """Return a file's content.

        Raises:
            FileNotFoundError: If there is no such file.
        """
        with self.filesystem.open_input_stream(self.below(name)) as file:
            return file.read()

    def folders(self, name: str) -> list[str]:
        """Return the sorted names of the folders in a folder; empty if it does not exist."""
        selector = fs.FileSelector(self.below(name), allow_not_found=True)
        found = self.filesystem.get_file_info(selector)
        return sorted(entry.base_name for entry in found if entry.type == fs.FileType.Directory)


def default_url() -> str:
    """Return the stack's storage, or Ray's usual folder on this machine."""
    return os.environ.get(VARIABLE) or str(Path.home() / "ray_results")


def open_storage(url: str) -> Storage:
    """Return the storage that a URL names, without connecting to it.

    Raises:
        StorageError: If the URL's scheme is unknown or a part of it is missing.
    """
    parts = urlsplit(url)
    if parts.scheme in ("", "file"):
        path = Path(parts.path if parts.scheme else url).expanduser().absolute()
        return Storage(url, fs.LocalFileSystem(), path.as_posix())
    if parts.scheme == "s3":
        return Storage(url, _s3(), _bucket(url, parts.netloc) + parts.path.rstrip("/"))
    if parts.scheme in AZURE_SCHEMES:
        container, _, host = parts.netloc.rpartition("@") if "@" in parts.netloc else (
            parts.netloc, "", "",
        )  # fmt: skip
        path = _bucket(url, container) + parts.path.rstrip("/")
        return Storage(url, _azure(url, host), path)
    raise StorageError(
        f"{url!r}: {parts.scheme}:// is not a storage; use a folder, s3://, abfs:// or az://"
    )


def check_writable(storage: Storage, marker: str | None = None) -> str:
    """Write a small file and return its name; given a name, check that this node sees the file.

    Args:
        storage: The storage to check.
        marker: The name of a file that another node wrote, or None to write one.

    Raises:
        StorageError: If the storage cannot be written, or this node does not see the file.
    """
    name = marker or f".sunspot-{uuid.uuid4().hex}"
    path = storage.below(name)
    try:
        if marker:
            found = storage.filesystem.get_file_info(path).type == fs.FileType.File
        else:
            storage.filesystem.create_dir(storage.path)
            with storage.filesystem.open_output_stream(path) as file:
                file.write(b"written before training begins\n")
            return name
    except (OSError, ValueError, RuntimeError) as error:
        reason = str(error).partition(". Detail:")[0]
        raise StorageError(
            f"the storage {storage.url} cannot be written: {reason}. Name another with --storage"
        ) from error
    if not found:
        raise StorageError(
            f"the storage {storage.url} is a different folder on each node, and every node must "
            "see the checkpoints: name a shared folder, s3:// or abfs:// with --storage"
        )
    return name


def remove(storage: Storage, name: str) -> None:
    """Delete a file if it exists."""
    path = storage.below(name)
    if storage.filesystem.get_file_info(path).type == fs.FileType.File:
        storage.filesystem.delete_file(path)


def _bucket(url: str, name: str) -> str:
    if not name:
        raise StorageError(f"{url!r} does not name a bucket or container")
    return name


def _s3() -> fs.FileSystem:
    # Without keys: this object is sent to the workers, which have their own.
    endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
    host = urlsplit(endpoint) if endpoint else None
    return fs.S3FileSystem(
        endpoint_override=host.netloc if host else None,
        scheme=host.scheme if host else None,
        # Otherwise Arrow asks AWS, which takes seconds where AWS cannot be reached.
        region=os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION") or "us-east-1",
        connect_timeout=CONNECT_TIMEOUT_S,
        request_timeout=REQUEST_TIMEOUT_S,
        retry_strategy=fs.AwsStandardS3RetryStrategy(max_attempts=TRIES),
    )


def _azure(url: str, host: str) -> fs.FileSystem:
    emulated = _connection_string(os.environ.get(CONNECTION_STRING, ""))
    if emulated:
        endpoint = urlsplit(emulated["BlobEndpoint"])
        return fs.AzureFileSystem(
            emulated["AccountName"],
            account_key=emulated["AccountKey"],
            blob_storage_authority=endpoint.netloc,
            blob_storage_scheme=endpoint.scheme,
            dfs_storage_authority=endpoint.netloc,
            dfs_storage_scheme=endpoint.scheme,
        )
    account, _, service = host.partition(".")
    account = account or os.environ.get("AZURE_STORAGE_ACCOUNT", "")
    if not account:
        raise StorageError(
            f"{url!r} does not name its account; set AZURE_STORAGE_ACCOUNT, or write "
            "abfss://CONTAINER@ACCOUNT.dfs.core.windows.net/FOLDER"
        )
    # What follows "dfs." or "blob.".
    domain = service.partition(".")[2] if service else AZURE_DOMAIN
    if domain.partition(":")[0] not in AZURE_DOMAINS:
        raise StorageError(
            f"{url!r}: {host} is not an address of Azure Storage, and gets no token of this "
            "machine; write abfss://CONTAINER@ACCOUNT.dfs.core.windows.net/FOLDER"
        )
    return NodeIdentityFileSystem(account, domain)


def _connection_string(text: str) -> dict[str, str]:
    """Return its parts; empty if there is none or it does not name an endpoint."""
    parts = dict(part.split("=", 1) for part in text.split(";") if "=" in part)
    return parts if {"BlobEndpoint", "AccountName", "AccountKey"} <= parts.keys() else {}
