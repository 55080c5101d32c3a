"""Azure's own clients, of the extra `azure`, for one login and one subscription."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from sunspot import extras
from sunspot.errors import SunspotError
from sunspot.targets.azure import environment, missing_role
from sunspot.targets.azure.credentials import Endpoints
from sunspot.targets.azure.doctor.findings import short, tried
from sunspot.targets.azure.doctor.login import Kind
from sunspot.targets.azure.environment import LoginError
from sunspot.targets.protocol import Finding

if TYPE_CHECKING:
    from azure.core.credentials import TokenCredential
    from azure.core.exceptions import ClientAuthenticationError
    from azure.mgmt.authorization.v2022_04_01 import AuthorizationManagementClient
    from azure.mgmt.compute import ComputeManagementClient
    from azure.mgmt.containerregistry import ContainerRegistryManagementClient
    from azure.mgmt.keyvault import KeyVaultManagementClient
    from azure.mgmt.resource.deployments import DeploymentsMgmtClient
    from azure.mgmt.resource.resources import ResourceManagementClient
    from azure.mgmt.resource.subscriptions import SubscriptionClient
    from azure.mgmt.storage import StorageManagementClient

MISSING = "Azure's clients are not installed (the extra `azure`)"
TO_INSTALL = extras.to_install("azure")

# A person waits: what does not answer soon is reported as not checked.
_PATIENCE = {"retry_total": 2, "connection_timeout": 10, "read_timeout": 30}

# Statuses below 500 that say nothing of what was asked: a time-out, and too many requests.
_BUSY = frozenset({408, 429})
_REFUSED = frozenset({400, 401, 403})


@dataclass(frozen=True, kw_only=True)
class Clients:
    """Azure's clients, each made when it is first used.

    Attributes:
        credential: the login.
        subscription: the subscription's id.
        endpoints: the addresses of Azure.
    """

    credential: TokenCredential
    subscription: str
    endpoints: Endpoints

    @property
    def scope(self) -> str:
        """The ARM id of the subscription."""
        return f"/subscriptions/{self.subscription}"

    @property
    def _options(self) -> dict[str, Any]:
        from sunspot.targets.azure.doctor.retries import ReadingRetries

        return {
            "base_url": self.endpoints.management,
            "credential_scopes": [_SCOPE],
            "retry_policy": ReadingRetries(**_PATIENCE),
            **_PATIENCE,
        }

    @cached_property
    def subscriptions(self) -> SubscriptionClient:
        """Subscriptions."""
        from azure.mgmt.resource.subscriptions import SubscriptionClient

        return SubscriptionClient(self.credential, **self._options)

    @cached_property
    def resources(self) -> ResourceManagementClient:
        """Resource providers and groups."""
        from azure.mgmt.resource.resources import ResourceManagementClient

        return ResourceManagementClient(self.credential, self.subscription, **self._options)

    @cached_property
    def deployments(self) -> DeploymentsMgmtClient:
        """Templates."""
        from azure.mgmt.resource.deployments import DeploymentsMgmtClient

        return DeploymentsMgmtClient(self.credential, self.subscription, **self._options)

    @cached_property
    def compute(self) -> ComputeManagementClient:
        """Machines, their sizes and their quota."""
        from azure.mgmt.compute import ComputeManagementClient

        return ComputeManagementClient(self.credential, self.subscription, **self._options)

    @cached_property
    def vaults(self) -> KeyVaultManagementClient:
        """Key vaults."""
        from azure.mgmt.keyvault import KeyVaultManagementClient

        return KeyVaultManagementClient(self.credential, self.subscription, **self._options)

    @cached_property
    def storage(self) -> StorageManagementClient:
        """Storage accounts."""
        from azure.mgmt.storage import StorageManagementClient

        return StorageManagementClient(self.credential, self.subscription, **self._options)

    @cached_property
    def registries(self) -> ContainerRegistryManagementClient:
        """Container registries."""
        from azure.mgmt.containerregistry import ContainerRegistryManagementClient

        return ContainerRegistryManagementClient(
            self.credential, self.subscription, **self._options
        )

    @cached_property
    def rights(self) -> AuthorizationManagementClient:
        """Roles and their assignments."""
        from azure.mgmt.authorization.v2022_04_01 import AuthorizationManagementClient

        return AuthorizationManagementClient(self.credential, self.subscription, **self._options)

    def principal(self) -> str:
        """The object id of who is logged in, from the token itself."""
        with explained():
            token = self.credential.get_token(_SCOPE).token
        try:
            body = token.split(".")[1]
            claims = json.loads(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)))
            return str(claims["oid"])
        except (IndexError, KeyError, ValueError) as error:
            raise SunspotError("the access token does not say whose it is") from error


_SCOPE = f"{Endpoints().management}/.default"


def are_installed() -> bool:
    """Whether the extra `azure` is installed."""
    try:
        return (
            find_spec("azure.identity") is not None and find_spec("azure.mgmt.compute") is not None
        )
    except ModuleNotFoundError:  # not even the package that holds them
        return False


def credential(kind: Kind, subscription: str, endpoints: Endpoints) -> TokenCredential:
    """The credential of a login, in the tenant of the subscription.

    Raises:
        LoginError: a part of the login is missing.
        SunspotError: Azure's clients are not installed.
    """
    try:
        from azure.identity import AzureCliCredential

        from sunspot.targets.azure.doctor.retries import ReadingRetries
    except ImportError as error:
        raise SunspotError(MISSING) from error
    if kind == "cli":
        return AzureCliCredential(subscription=subscription, process_timeout=60)
    found = environment.credential(endpoints.login, retry_policy_class=ReadingRetries, **_PATIENCE)
    if found is None:
        raise LoginError("the login of the environment is gone")
    return found


@contextmanager
def explained() -> Iterator[None]:
    """Turns the errors of Azure's clients into SunspotErrors of one line.

    Raises:
        LoginError: the login was refused, is not available here, or a part of it is missing.
        RefusedError: the request was refused.
        SunspotError: anything else went wrong.
    """
    from azure.core.exceptions import AzureError, ClientAuthenticationError, HttpResponseError

    try:
        yield
    except SunspotError:
        raise
    except ClientAuthenticationError as error:
        raise _of_login(error) from error
    except HttpResponseError as error:
        said = error.error
        code = (said and said.code) or error.status_code
        message = (said and said.message) or error.message
        status = error.status_code or 500
        kind = RefusedError if status < 500 and status not in _BUSY else SunspotError
        told = kind(f"Azure answered {code}: {short(message)}")
        if missing := missing_role.find(message):
            told.add_note(f"ask an owner: {missing.command}")
        raise told from error
    except AzureError as error:
        raise SunspotError(short(error)) from error
    except ImportError as error:
        raise SunspotError(f"{MISSING}: {error.name}") from error
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        # Azure's clients do not check an answer, so what it lacks is missed when it is used.
        raise SunspotError(f"Azure's answer is not as documented ({short(repr(error))})") from error


def _of_login(error: ClientAuthenticationError) -> SunspotError:
    """A LoginError if the login itself is wrong; azure-identity says the same of a busy Azure.

    Microsoft's identity platform gives each of its refusals a code that begins with AADSTS.
    """
    from azure.identity import CredentialUnavailableError

    said = short(error.message)
    if error.status_code in _REFUSED or "AADSTS" in error.message:
        return LoginError(f"Azure refuses it: {said}")
    if isinstance(error, CredentialUnavailableError):
        return LoginError(f"it is not available here: {said}")
    return SunspotError(said)


class RefusedError(SunspotError):
    """Azure refused a request: what it names does not exist, or may not be read."""


def asked(check: str, look: Callable[[], Iterable[Finding]]) -> list[Finding]:
    """The findings of `look`, which asks Azure; the last says why if it could not be asked."""

    def explaining() -> Iterator[Finding]:
        with explained():
            yield from look()

    return tried(check, explaining)
