"""Who is logged in to Azure, and to which subscription; asked of this machine and of `az` only."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from sunspot.errors import SunspotError, UsageError
from sunspot.targets.azure import credentials
from sunspot.targets.azure.doctor import stack_file
from sunspot.targets.azure.doctor.findings import failure, not_checked, ok, short
from sunspot.targets.protocol import Finding

LOGIN, SUBSCRIPTION = "login", "subscription"
SUBSCRIPTION_VARIABLE = "ARM_SUBSCRIPTION_ID"
SUBSCRIPTION_KEY = "azure-native:subscriptionId"

# Logins of Pulumi's provider that are not tried here (its installation and configuration page).
OTHERS = ("ARM_USE_OIDC", "ARM_USE_MSI", "ARM_CLIENT_CERTIFICATE_PATH")

# Azure CLI, core/_profile.py: no login; a login, but no subscription is the default one.
_NO_LOGIN = re.compile(r"az login'? to (?:setup|set up|access)|not logged in", re.IGNORECASE)
_NONE_CHOSEN = re.compile(r"No subscription found|az account set", re.IGNORECASE)

_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)

Kind = Literal["principal", "cli"]

TO_RENEW: Mapping[Kind, str] = {
    "cli": "az login",
    "principal": "az ad sp credential reset --id $ARM_CLIENT_ID prints a new secret, for "
    "ARM_CLIENT_SECRET; or unset the three variables, then az login",
}


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
    chosen = chosen_by(stack, folder)
    principal = [os.environ.get(name) for name in credentials.PRINCIPAL]
    if all(principal):
        login = ok(LOGIN, f"service principal {principal[0]}, of the environment")
        return _with_subscription("principal", login, chosen)
    if others := [name for name in OTHERS if os.environ.get(name)]:
        reason = f"{others[0]} is set, and this kind of login cannot be tried here"
        return Login(findings=(not_checked(LOGIN, reason),))
    return _of_cli(chosen)


def chosen_by(stack: str, folder: Path) -> str | None:
    """The subscription that the stack file names, or else the environment.

    Raises:
        UsageError: the stack file names something else than an id.
    """
    named = stack_file.config(folder / f"Pulumi.{stack}.yaml").get(SUBSCRIPTION_KEY)
    if named is not None and not _ID.fullmatch(str(named)):
        raise UsageError(
            f"Pulumi.{stack}.yaml: config > {SUBSCRIPTION_KEY}: {named!r} is not the id of a "
            "subscription: write it as `az account list -o table` shows it"
        )
    return named or os.environ.get(SUBSCRIPTION_VARIABLE) or None


def _with_subscription(kind: Kind, login: Finding, chosen: str | None) -> Login:
    if chosen:
        return Login(findings=(login, ok(SUBSCRIPTION, chosen)), kind=kind, subscription=chosen)
    missing = failure(
        SUBSCRIPTION,
        f"none is chosen, and a service principal has no default ({SUBSCRIPTION_VARIABLE})",
        f"export {SUBSCRIPTION_VARIABLE}=ID (az account list -o table lists yours)",
    )
    return Login(findings=(login, missing), kind=kind)


def _of_cli(chosen: str | None) -> Login:
    """The login of the Azure CLI, by the token that it gives: an expired one gives none."""
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


_TO_LOG_IN = (
    "az login, then az account set --subscription NAME; or export "
    f"{', '.join((*credentials.PRINCIPAL, SUBSCRIPTION_VARIABLE))}"
)


def _refused(said: str) -> Login:
    if "AADSTS" in said:
        return Login(findings=(failure(LOGIN, f"has expired: {short(said)}", "az login"),))
    if _NO_LOGIN.search(said):
        return Login(findings=(failure(LOGIN, "there is none", _TO_LOG_IN),))
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
