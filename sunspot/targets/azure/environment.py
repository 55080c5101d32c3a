"""The logins to Azure that stand in the environment, as Pulumi's provider takes them.

Its names (pulumi.com, Azure Native, "Installation & configuration") and their order: a service
principal with a certificate, with a secret, or by OpenID Connect; a managed identity. A pod with
Azure's workload identity has the AZURE_ names instead, which the provider does not read
(auth_azidentity.go, 3.x): `for_pulumi` has them under its own. Tokens come from Microsoft's
azure-identity.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from sunspot.errors import SunspotError

if TYPE_CHECKING:
    from azure.core.credentials import TokenCredential

# The address of Azure's login; the discovery of authorities knows only Azure's own.
AUTHORITY = "https://login.microsoftonline.com"

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

SUBSCRIPTION = "ARM_SUBSCRIPTION_ID"
# What to set, for a message where there is no login.
TO_SET = (
    f"{CLIENT[0]}, {TENANT[0]} and one of {SECRET}, {CERTIFICATE}, {USE_OIDC}; or {USE_MSI}; each "
    f"with {SUBSCRIPTION}"
)

Kind = Literal["certificate", "secret", "assertion", "identity"]

_CALLED: Mapping[Kind, str] = {
    "certificate": f"with a certificate ({CERTIFICATE})",
    "secret": f"with a secret ({SECRET})",
    "assertion": f"by OpenID Connect ({USE_OIDC} or {FEDERATED_FILE})",
    "identity": f"a managed identity ({USE_MSI})",
}
# Without --append it revokes the principal's other secrets and certificates (its own reference).
_RESET = f"az ad sp credential reset --id ${CLIENT[0]} --append"
_TO_RENEW: Mapping[Kind, str] = {
    "certificate": f"{_RESET} --create-cert makes a new certificate, for {CERTIFICATE}",
    "secret": f"{_RESET} prints a new secret, for {SECRET}",
    "assertion": "compare the application's federated credential (issuer, subject, audience) with "
    "the token's: az ad app federated-credential list --id $ARM_CLIENT_ID",
    "identity": "give this machine an identity (az vm identity assign), or, where it has several, "
    f"name one by {CLIENT[0]}",
}

# For whom a token of OpenID Connect must be (Microsoft, "Workload identity federation").
AUDIENCE = "api://AzureADTokenExchange"
TIMEOUT_S = 30.0

# The options that a managed identity's credential takes from those of `credential`.
_WAITS = ("read_timeout", "retry_total")


class LoginError(SunspotError):
    """A login cannot be used: it is not complete, not available here, or Azure refused it."""


def is_given() -> bool:
    """Whether a login is in the environment."""
    return _kind() is not None


def missing() -> str | None:
    """What a login that is begun in the environment lacks; None if there is none, or all of it.

    Pulumi's provider takes no other login where one of these is set (auth_azidentity.go).
    """
    given = os.environ
    lacks = [names[0] for names in (CLIENT, TENANT) if not _first(given, names)]
    begun = [name for name in (CERTIFICATE, SECRET) if given.get(name)]
    begun += [USE_OIDC] if _is_on(given, USE_OIDC) else []
    return f"{begun[0]} is set, but not {' and '.join(lacks)}" if begun and lacks else None


def described() -> str:
    """Which login it is, in words; "none" without one."""
    kind = _kind()
    if kind is None:
        return "none"
    principal = f"service principal {_first(os.environ, CLIENT)}, "
    return ("" if kind == "identity" else principal) + _CALLED[kind]


def to_renew() -> str:
    """What to do where Azure refuses it."""
    kind = _kind()
    return f"{_TO_RENEW[kind]}; or unset its variables, then az login" if kind else "az login"


def for_pulumi() -> dict[str, str]:
    """The login's variables under the names that Pulumi's provider reads; none without a login."""
    given, kind = os.environ, _kind()
    if kind is None:
        return {}
    found = {names[0]: _first(given, names) for names in (TENANT, CLIENT)}
    if kind == "assertion":
        file = given.get(OIDC_FILE) or given.get(FEDERATED_FILE, "")
        found |= {USE_OIDC: "true", OIDC_FILE: file}
    return {name: value for name, value in found.items() if value}


def credential(authority: str, **options: Any) -> TokenCredential | None:
    """The login of the environment; None if there is none.

    Args:
        authority: the address of Azure's login.
        options: those of azure-identity's credentials; a managed identity's takes `read_timeout`
            (seconds) and `retry_total` only.

    Raises:
        LoginError: its certificate cannot be read, or a variable is missing.
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
        # It brings a policy for its retries, and a connection_timeout shorter than others'.
        waits = {name: options[name] for name in _WAITS if name in options}
        return ManagedIdentityCredential(client_id=client or None, **waits)
    options |= {"authority": authority, "disable_instance_discovery": authority != AUTHORITY}
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
        raise LoginError(f"{CERTIFICATE}={given[CERTIFICATE]}: {error}") from error


def token(authority: str, scope: str) -> str | None:
    """An access token of the environment's login; None if there is none.

    Raises:
        LoginError: it is not complete.
        SunspotError: Azure's login refused it, or did not answer.
    """
    if not is_given():
        return None
    import requests
    from azure.core.exceptions import AzureError

    try:
        found = credential(authority, read_timeout=TIMEOUT_S)
        return None if found is None else found.get_token(scope).token
    except (AzureError, requests.RequestException, LookupError, OSError, ValueError) as error:
        said = " ".join(str(error).split())[:300]
        raise SunspotError(
            f"no token for the login of the environment, {described()}: {said}"
        ) from error


def _kind() -> Kind | None:
    given = os.environ
    if _first(given, TENANT) and _first(given, CLIENT):
        if given.get(CERTIFICATE):
            return "certificate"
        if given.get(SECRET):
            return "secret"
        if given.get(FEDERATED_FILE) or _is_on(given, USE_OIDC):
            return "assertion"
    return "identity" if _is_on(given, USE_MSI) and not missing() else None


def _assertion(given: Mapping[str, str]) -> Callable[[], str]:
    """Gives the token of OpenID Connect that stands for the service principal, each time anew."""
    if given.get(OIDC_TOKEN):
        return lambda: given[OIDC_TOKEN]
    if file := given.get(OIDC_FILE) or given.get(FEDERATED_FILE):
        return lambda: _read(Path(file))
    url, bearer = _first(given, OIDC_URL), _first(given, OIDC_BEARER)
    if not (url and bearer):
        raise LoginError(
            f"{USE_OIDC} is set, and no token: set {OIDC_TOKEN}, {OIDC_FILE}, or {OIDC_URL[0]} "
            f"and {OIDC_BEARER[0]}"
        )
    return lambda: _requested(url, bearer)


def _read(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8").strip()
    except (OSError, ValueError) as error:
        raise LoginError(f"the token of OpenID Connect cannot be read: {error}") from error


def _requested(url: str, bearer: str) -> str:
    """A token from GitHub, or whoever else runs this ("About security hardening with OIDC")."""
    import requests

    try:
        answer = requests.get(
            url,
            params={"audience": AUDIENCE},
            headers={"Authorization": f"Bearer {bearer}"},
            timeout=TIMEOUT_S,
        )
        answer.raise_for_status()
        return str(answer.json()["value"])
    except (requests.RequestException, LookupError, TypeError, ValueError) as error:
        raise LoginError(f"{url} gave no token of OpenID Connect: {error}") from error


def _first(given: Mapping[str, str], names: tuple[str, ...]) -> str:
    return next((given[name] for name in names if given.get(name)), "")


def _is_on(given: Mapping[str, str], name: str) -> bool:
    return given.get(name, "").lower() in {"1", "true"}
