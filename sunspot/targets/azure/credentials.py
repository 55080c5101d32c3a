"""The login to Azure that the user has: one of the environment, or that of the Azure CLI.

Those of the environment are in environment.py. The Azure CLI is asked itself, since it also lists
what its user may see.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from sunspot.errors import SunspotError, UsageError
from sunspot.targets.azure import environment, stack_file

TIMEOUT_S = 60.0
SUBSCRIPTION_VARIABLE = environment.SUBSCRIPTION
SUBSCRIPTION_KEY = "azure-native:subscriptionId"

NO_CLI = (
    "there is no Azure CLI (`az`) on this machine, nor a login in the environment "
    f"({environment.TO_SET})"
)
TO_GET_CLI = (
    "install it (https://learn.microsoft.com/cli/azure/install-azure-cli-linux) and run `az login`"
)

# Access tokens last for an hour at least; a token is asked for again long before.
TOKEN_KEPT_S = 300.0


_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)


class NoLoginError(SunspotError):
    """There is no login of the Azure CLI, nor one in the environment."""


class EncryptedError(UsageError):
    """A value of a stack file that Pulumi can read and Sunspot cannot."""


@dataclass(frozen=True, kw_only=True)
class Endpoints:
    """The addresses of Azure's public cloud."""

    login: str = environment.AUTHORITY
    management: str = "https://management.azure.com"


class Login:
    """Access tokens of the user's login, for `sunspot.node.azure.arm.Arm`.

    Args:
        endpoints: the addresses of Azure.
        subscription: the subscription to work in, whose tenant the Azure CLI's tokens are for; by
            default ARM_SUBSCRIPTION_ID, otherwise the Azure CLI's.
    """

    def __init__(
        self, endpoints: Endpoints | None = None, *, subscription: str | None = None
    ) -> None:
        self._endpoints = endpoints or Endpoints()
        self._subscription = subscription or os.environ.get(SUBSCRIPTION_VARIABLE)
        self._token = ""
        self._asked_at = 0.0  # monotonic

    def token(self, resource: str) -> str:
        """An access token for Azure's management API, which is the only `resource`.

        Raises:
            SunspotError: there is no login, or it has expired.
        """
        if not self._token or time.monotonic() - self._asked_at > TOKEN_KEPT_S:
            self._token = self._ask(resource)
            self._asked_at = time.monotonic()
        return self._token

    def _ask(self, resource: str) -> str:
        found = environment.token(self._endpoints.login, f"{Endpoints().management}/.default")
        if found is not None:
            return found
        where = ("--subscription", self._subscription) if self._subscription else ()
        asked = ("account", "get-access-token", "--resource", resource, *where)
        return _of_cli("accessToken", *asked)

    def subscription(self) -> str:
        """The subscription to work in.

        Raises:
            SunspotError: none is chosen.
        """
        if self._subscription:
            return self._subscription
        if environment.is_given():
            raise SunspotError(f"no subscription is chosen: set {SUBSCRIPTION_VARIABLE}")
        return _of_cli("id", "account", "show")


def chosen_subscription(stack: str, folder: Path) -> str | None:
    """The subscription that a stack file names, otherwise ARM_SUBSCRIPTION_ID; None without both.

    Raises:
        EncryptedError: the file has it encrypted.
        UsageError: the file names something else than an id.
    """
    named = stack_file.config(stack_file.of(stack, folder)).get(SUBSCRIPTION_KEY)
    if isinstance(named, Mapping):
        raise EncryptedError(
            f"config > {SUBSCRIPTION_KEY}: is encrypted, but is not a secret: set it again without "
            "--secret"
        )
    if named is not None and not _ID.fullmatch(str(named)):
        raise UsageError(
            f"Pulumi.{stack}.yaml: config > {SUBSCRIPTION_KEY}: {named!r} is not the id of a "
            "subscription: write it as `az account list -o table` shows it"
        )
    return named or os.environ.get(SUBSCRIPTION_VARIABLE) or None


def _of_cli(key: str, *arguments: str) -> str:
    """A part of what the Azure CLI prints, which may be a secret: no error repeats it."""
    answer = az(*arguments, "--output", "json")
    if answer.returncode:
        said = " ".join(answer.stderr.split())
        # It names this command where nobody is logged in; an answer that it lacks has other words.
        failure = NoLoginError if "az login" in said else SunspotError
        raise failure(f"az says: {said} (`az login`, `az account set --subscription ...`)")
    try:
        return str(json.loads(answer.stdout)[key])
    except (LookupError, TypeError, ValueError):
        command = " ".join(("az", *arguments))
        raise SunspotError(f"`{command}` did not answer with JSON that has {key!r}") from None


def az(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Runs the Azure CLI to its end. Raises SunspotError if it is missing, or hangs."""
    try:
        return subprocess.run(
            ["az", *arguments],  # noqa: S607 - the user's own, from the PATH
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=TIMEOUT_S,
        )
    except FileNotFoundError:
        raise NoLoginError(f"{NO_CLI}: {TO_GET_CLI}") from None
    except subprocess.TimeoutExpired:
        raise SunspotError(f"az did not answer within {TIMEOUT_S:g} s") from None
    except OSError as error:
        raise SunspotError(f"the Azure CLI (`az`) cannot be run: {error}") from error
