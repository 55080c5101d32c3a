"""The logins to Azure that stand in the environment, as Pulumi's provider takes them.

Its names (pulumi.com, Azure Native, "Installation & configuration") and their order: a service
principal with a certificate, with a secret, or by OpenID Connect; a managed identity. A pod with
Azure's workload identity has the AZURE_ names instead. Tokens come from Microsoft's azure-identity.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sunspot.errors import SunspotError

if TYPE_CHECKING:
    from azure.core.credentials import TokenCredential

TENANT, CLIENT = ("ARM_TENANT_ID", "AZURE_TENANT_ID"), ("ARM_CLIENT_ID", "AZURE_CLIENT_ID")
SECRET = "ARM_CLIENT_SECRET"  # noqa: S105 - a name
CERTIFICATE, PASSWORD = "ARM_CLIENT_CERTIFICATE_PATH", "ARM_CLIENT_CERTIFICATE_PASSWORD"
USE_OIDC, USE_MSI = "ARM_USE_OIDC", "ARM_USE_MSI"
OIDC_TOKEN = "ARM_OIDC_TOKEN"  # noqa: S105
OIDC_FILE, FEDERATED_FILE = "ARM_OIDC_TOKEN_FILE_PATH", "AZURE_FEDERATED_TOKEN_FILE"
# GitHub's own names come second.
OIDC_URL = ("ARM_OIDC_REQUEST_URL", "ACTIONS_ID_TOKEN_REQUEST_URL")
OIDC_BEARER = ("ARM_OIDC_REQUEST_TOKEN", "ACTIONS_ID_TOKEN_REQUEST_TOKEN")
VARIABLES = (
    *(*TENANT, *CLIENT, SECRET, CERTIFICATE, PASSWORD, USE_OIDC, USE_MSI),
    *(OIDC_TOKEN, OIDC_FILE, FEDERATED_FILE, *OIDC_URL, *OIDC_BEARER),
)

# For whom a token of OpenID Connect must be (Microsoft, "Workload identity federation").
AUDIENCE = "api://AzureADTokenExchange"
TIMEOUT_S = 30.0


def is_given() -> bool:
    """Whether a login is in the environment."""
    return _kind() is not None


def credential(authority: str, **options: Any) -> TokenCredential | None:
    """The login of the environment; None if there is none.

    Args:
        authority: the address of Azure's login.
        options: those of azure-identity's credentials.

    Raises:
        SunspotError: its certificate cannot be read.
    """
    from azure.identity import (
        CertificateCredential,
        ClientAssertionCredential,
        ClientSecretCredential,
        ManagedIdentityCredential,
    )

    given, kind = os.environ, _kind()
    tenant, client = _first(given, TENANT), _first(given, CLIENT)
    if kind is None:
        return None
    if kind == "identity":
        return ManagedIdentityCredential(client_id=client or None)
    options = {"authority": authority, **options}
    if kind == "secret":
        return ClientSecretCredential(tenant, client, given[SECRET], **options)
    if kind == "assertion":
        return ClientAssertionCredential(tenant, client, _assertion(given), **options)
    try:
        password = given.get(PASSWORD) or None
        return CertificateCredential(
            tenant, client, given[CERTIFICATE], password=password, **options
        )
    except (OSError, ValueError) as error:
        raise SunspotError(f"{CERTIFICATE}={given[CERTIFICATE]}: {error}") from error


def token(authority: str, scope: str, **options: Any) -> str | None:
    """An access token of the environment's login; None if there is none.

    Raises:
        SunspotError: Azure's login refused it, or did not answer.
    """
    if not is_given():
        return None
    import requests
    from azure.core.exceptions import AzureError

    try:
        found = credential(authority, **options)
        return None if found is None else found.get_token(scope).token
    except (AzureError, requests.RequestException, LookupError, OSError, ValueError) as error:
        said = " ".join(str(error).split())[:300]
        raise SunspotError(
            f"no token for the login of the environment ({_called()}): {said}"
        ) from error


def _kind() -> str | None:
    given = os.environ
    if _first(given, TENANT) and _first(given, CLIENT):
        if given.get(CERTIFICATE):
            return "certificate"
        if given.get(SECRET):
            return "secret"
        if given.get(FEDERATED_FILE) or _is_on(given, USE_OIDC):
            return "assertion"
    return "identity" if _is_on(given, USE_MSI) else None


def _called() -> str:
    kinds = {
        "certificate": f"a service principal, {CERTIFICATE}",
        "secret": f"a service principal, {SECRET}",
        "assertion": f"OpenID Connect, {USE_OIDC} or {FEDERATED_FILE}",
        "identity": f"a managed identity, {USE_MSI}",
    }
    return kinds.get(_kind() or "", "none")


def _assertion(given: Mapping[str, str]) -> Callable[[], str]:
    """Gives the token of OpenID Connect that stands for the service principal, each time anew."""
    if given.get(OIDC_TOKEN):
        return lambda: given[OIDC_TOKEN]
    if file := given.get(OIDC_FILE) or given.get(FEDERATED_FILE):
        return lambda: Path(file).read_text(encoding="utf-8").strip()
    url, bearer = _first(given, OIDC_URL), _first(given, OIDC_BEARER)
    if not (url and bearer):
        raise SunspotError(
            f"{USE_OIDC} is set, and no token: set {OIDC_TOKEN}, {OIDC_FILE}, or {OIDC_URL[0]} "
            f"and {OIDC_BEARER[0]}"
        )
    return lambda: _requested(url, bearer)


def _requested(url: str, bearer: str) -> str:
    """A token from GitHub, or whoever else runs this ("About security hardening with OIDC")."""
    import requests

    answer = requests.get(
        url,
        params={"audience": AUDIENCE},
        headers={"Authorization": f"Bearer {bearer}"},
        timeout=TIMEOUT_S,
    )
    answer.raise_for_status()
    return str(answer.json()["value"])


def _first(given: Mapping[str, str], names: tuple[str, ...]) -> str:
    return next((given[name] for name in names if given.get(name)), "")


def _is_on(given: Mapping[str, str], name: str) -> bool:
    return given.get(name, "").lower() in {"1", "true"}
