"""Who is logged in to Azure, and to which subscription; asked of this machine and of `az` only."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from sunspot.errors import SunspotError
from sunspot.targets.azure import credentials, environment, stack_file
from sunspot.targets.azure.credentials import SUBSCRIPTION_VARIABLE, EncryptedError
from sunspot.targets.azure.doctor.findings import failure, not_checked, ok, short
from sunspot.targets.protocol import Finding

LOGIN, SUBSCRIPTION = "login", "subscription"

# A login of Pulumi's provider that is not tried here, and keys of a stack file for one (its
# installation and configuration page, its SDK's provider.py, and auth_azidentity.go).
OTHER = "ARM_USE_DEFAULT_AZURE_CREDENTIAL"
OTHER_KEYS = (
    "azure-native:clientSecret",
    "azure-native:clientCertificatePath",
    "azure-native:useOidc",
    "azure-native:useMsi",
    "azure-native:useDefaultAzureCredential",
)

# A stack file may name these beside a secret of the environment.
_OF_PRINCIPAL = ("azure-native:clientId", "azure-native:tenantId")

# Azure CLI, core/_profile.py: no login; a login, but no subscription is the default one.
_NO_LOGIN = re.compile(r"az login'? to (?:setup|set up|access)|not logged in", re.IGNORECASE)
_NONE_CHOSEN = re.compile(r"No subscription found|az account set", re.IGNORECASE)

_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)

Kind = Literal["environment", "cli"]


def to_renew(kind: Kind) -> str:
    """What to do where Azure refuses a login."""
    return environment.to_renew() if kind == "environment" else "az login"


@dataclass(frozen=True, kw_only=True)
class Login:
    """What is known of the login before Azure is asked.

    Attributes:
        findings: on the login and on the subscription.
        kind: how to log in; None if there is no login that could be used here.
        subscription: the subscription's id; None if none is chosen.
    """

    findings: tuple[Finding, ...]
    kind: Kind | None = None
    subscription: str | None = None


def find(stack: str, folder: Path) -> Login:
    """The login that Pulumi would use for a stack of the project in `folder`."""
    file = stack_file.of(stack, folder)
    given = stack_file.config(file)
    # Pulumi, too, takes a stack file's login before one of the environment.
    if others := _set(OTHER_KEYS, given):
        return _untried(f"{others[0]} is set, which cannot be tried here")
    try:
        chosen = credentials.chosen_subscription(stack, folder)
    except EncryptedError as error:
        return _untried(str(error))
    if _set([OTHER], os.environ):
        return _untried(f"{OTHER} is set, which cannot be tried here")
    if environment.is_given():
        login = ok(LOGIN, f"{environment.described()}, of the environment")
        return _with_subscription("environment", login, chosen)
    if (lacks := environment.missing()) and not _set(_OF_PRINCIPAL, given):
        remedy = "set what is missing, or unset the variable to use az login"
        return Login(findings=(failure(LOGIN, lacks, remedy),))
    found = _of_cli(chosen)
    if found.kind is None and stack_file.top(file).get("environment"):
        return _untried("the stack's environment (Pulumi ESC) may have one")
    return found


def _set(names: Iterable[str], given: Mapping[str, object]) -> list[str]:
    return [name for name in names if str(given.get(name) or False).lower() != "false"]


def _untried(reason: str) -> Login:
    """For a login that Pulumi may have although it cannot be tried here."""
    return Login(findings=(not_checked(LOGIN, reason),))


def _with_subscription(kind: Kind, login: Finding, chosen: str | None) -> Login:
    if chosen:
        return Login(findings=(login, ok(SUBSCRIPTION, chosen)), kind=kind, subscription=chosen)
    missing = failure(
        SUBSCRIPTION,
        f"none is chosen, and a login of the environment has no default ({SUBSCRIPTION_VARIABLE})",
        f"export {SUBSCRIPTION_VARIABLE}=ID (az account list -o table lists yours)",
    )
    return Login(findings=(login, missing), kind=kind)


def _of_cli(chosen: str | None) -> Login:
    """The login of the Azure CLI, by the token that it gives: an expired one gives none."""
    if shutil.which("az") is None:
        return Login(findings=(failure(LOGIN, credentials.NO_CLI, credentials.TO_GET_CLI),))
    where = ("--subscription", chosen) if chosen else ()
    try:
        asked = credentials.az("account", "get-access-token", *where, "--output", "json")
    except SunspotError as error:
        return Login(findings=(failure(LOGIN, short(error), _TO_LOG_IN),))
    if asked.returncode:
        return _refused(asked.stderr)
    try:
        answer = json.loads(asked.stdout)
        found, tenant = answer["subscription"], answer["tenant"]
    except (ValueError, KeyError, TypeError) as error:
        return Login(findings=(not_checked(LOGIN, f"az did not answer with a token ({error!r})"),))
    login = ok(LOGIN, f"of the Azure CLI, in tenant {tenant}")
    return _with_subscription("cli", login, chosen or found)


_TO_LOG_IN = "az login"


_NONE = f"there is none of the Azure CLI, nor one in the environment ({environment.TO_SET})"


def _refused(said: str) -> Login:
    if "AADSTS" in said:
        return Login(findings=(failure(LOGIN, f"has expired: {short(said)}", "az login"),))
    if _NO_LOGIN.search(said):
        return Login(findings=(failure(LOGIN, _NONE, _TO_LOG_IN),))
    if _NONE_CHOSEN.search(said):
        login = ok(LOGIN, "of the Azure CLI")
        return Login(findings=(login, _none_chosen()))
    return Login(findings=(failure(LOGIN, f"az says: {short(said)}", _TO_LOG_IN),))


def _none_chosen() -> Finding:
    """Names the subscriptions of the Azure CLI's login, of which none is the default."""
    try:
        listed = json.loads(credentials.az("account", "list", "--output", "json").stdout)
        names = ", ".join(f"{one['name']} ({one['id']})" for one in listed)
    except (SunspotError, ValueError, KeyError, TypeError):
        names = "az account list -o table lists them"
    return failure(
        SUBSCRIPTION, f"none of yours is chosen: {names}", "az account set --subscription ID"
    )
