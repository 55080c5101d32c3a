"""The secrets of a cluster: files on the caller's machine, and files in the containers.

Compose reads a secret from a variable of its own environment and copies it into the container. A
secret that is a file would be mounted: not on a remote host, and not readable for the container's
user where its mode is 0600 (pkg/compose/secrets.go and create.go of Compose 2.40). Neither way
shows it in `docker inspect`.
"""

from __future__ import annotations

import secrets
from pathlib import Path

from sunspot.errors import SunspotError
from sunspot.node.files import write_private
from sunspot.targets.compose.settings import again

RAY_TOKEN = "ray-token"  # noqa: S105 - the names of secrets, not secrets
JUPYTER_TOKEN = "jupyter-token"  # noqa: S105
S3_SECRET_KEY = "s3-secret-key"  # noqa: S105
S3_CREDENTIALS = "s3-credentials"
S3_ACCESS_KEY = "sunspot"

VARIABLES = {
    RAY_TOKEN: "SUNSPOT_RAY_TOKEN",
    JUPYTER_TOKEN: "SUNSPOT_JUPYTER_TOKEN",
    S3_SECRET_KEY: "SUNSPOT_S3_SECRET_KEY",
    S3_CREDENTIALS: "SUNSPOT_S3_CREDENTIALS",
}
"""The variable that Compose reads each secret from."""

MOUNT = "/run/secrets"


def inside(name: str) -> str:
    """A secret's path in the containers that have it."""
    return f"{MOUNT}/{name}"


def create(folder: Path) -> None:
    """Writes new secrets into a cluster's folder, each a file with mode 0600."""
    key = secrets.token_hex(32)
    write_private(folder / RAY_TOKEN, secrets.token_hex(32))
    write_private(folder / JUPYTER_TOKEN, secrets.token_hex(32))
    write_private(folder / S3_SECRET_KEY, key)
    credentials = f"aws_access_key_id = {S3_ACCESS_KEY}\naws_secret_access_key = {key}\n"
    write_private(folder / S3_CREDENTIALS, f"[default]\n{credentials}")


def variables(folder: Path) -> dict[str, str]:
    """The variables with the secrets in a cluster's folder. Raises as `read` does."""
    return {variable: read(folder, name) for name, variable in VARIABLES.items()}


def read(folder: Path, name: str) -> str:
    """A secret in a cluster's folder.

    Raises:
        SunspotError: its file cannot be read.
    """
    try:
        return (folder / name).read_text()
    except OSError as error:
        raise SunspotError(
            f"cannot read the secret {folder / name}: {error.strerror}. Take the cluster down and "
            f"start again: sunspot down {folder.name} && {again(folder.name)}"
        ) from error
