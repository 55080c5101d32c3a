"""What still exists in a resource group: asked of Azure itself, not of Pulumi.

With a service principal in the environment (ARM_CLIENT_ID, ARM_CLIENT_SECRET, ARM_TENANT_ID), as
Pulumi's provider takes it, over Azure's REST API; otherwise by the Azure CLI, whose login the
provider uses as well. So whoever could make the cluster needs nothing more.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from sunspot.errors import SunspotError

API_VERSION = "2021-04-01"
TIMEOUT_S = 60.0
PRINCIPAL = ("ARM_CLIENT_ID", "ARM_CLIENT_SECRET", "ARM_TENANT_ID")
_GONE = "ResourceGroupNotFound"


@dataclass(frozen=True, kw_only=True)
class Endpoints:
    """Where Azure's public cloud is asked."""

    login: str = "https://login.microsoftonline.com"
    management: str = "https://management.azure.com"


def remaining(group_id: str, endpoints: Endpoints | None = None) -> list[str]:
    """The ARM ids of all that is in a resource group; the group's own if it is empty.

    An empty list says that the group is gone. Raises SunspotError where Azure could not be asked.
    """
    principal = {name: os.environ.get(name, "") for name in PRINCIPAL}
    if all(principal.values()):
        return _by_rest(group_id, principal, endpoints or Endpoints())
    return _by_cli(group_id)


def _by_rest(group_id: str, principal: Mapping[str, str], endpoints: Endpoints) -> list[str]:
    import requests

    try:
        login = requests.post(
            f"{endpoints.login}/{principal['ARM_TENANT_ID']}/oauth2/v2.0/token",
            data={
                "grant_type": "client_credentials",
                "client_id": principal["ARM_CLIENT_ID"],
                "client_secret": principal["ARM_CLIENT_SECRET"],
                "scope": f"{Endpoints().management}/.default",
            },
            timeout=TIMEOUT_S,
        )
        login.raise_for_status()
        headers = {"Authorization": f"Bearer {login.json()['access_token']}"}
        url = f"{endpoints.management}{group_id}/resources?api-version={API_VERSION}"
        found: list[str] = []
        while url:
            page = requests.get(url, headers=headers, timeout=TIMEOUT_S)
            if page.status_code == 404 and _GONE in page.text:
                return []
            page.raise_for_status()
            found += [one["id"] for one in page.json()["value"]]
            url = page.json().get("nextLink")
    except (requests.RequestException, KeyError, ValueError) as error:
        raise SunspotError(f"Azure did not answer ({error})") from error
    return found or [group_id]


def _by_cli(group_id: str) -> list[str]:
    _, _, subscription, _, group = group_id.split("/")[:5]
    where = ["--subscription", subscription]
    listed = _az("resource", "list", "--resource-group", group, *where, "--output", "json")
    if listed.returncode:
        if _GONE in listed.stderr:
            return []
        raise SunspotError(f"az says: {' '.join(listed.stderr.split())}")
    try:
        found = [one["id"] for one in json.loads(listed.stdout or "[]")]
    except (ValueError, KeyError, TypeError) as error:
        raise SunspotError(f"az answered with what is no list of resources ({error})") from error
    if found:
        return found
    # Some versions answer for a group that does not exist as for an empty one.
    exists = _az("group", "exists", "--name", group, *where)
    is_gone = exists.returncode == 0 and exists.stdout.strip() == "false"
    return [] if is_gone else [group_id]


def _az(*arguments: str) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            ["az", *arguments],  # noqa: S607 - the user's own, wherever it is
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=TIMEOUT_S,
        )
    except FileNotFoundError:
        raise SunspotError(
            "there is neither the Azure CLI (`az`) here nor a service principal in the environment"
        ) from None
    except subprocess.TimeoutExpired:
        raise SunspotError(f"az did not answer within {TIMEOUT_S:g} s") from None


def check_gone(
    name: str, group_id: str, kept: list[str], ask: Callable[[str], list[str]] = remaining
) -> None:
    """Raises SunspotError, with a list, if more than `kept` (ARM ids) is in a destroyed group."""
    group = group_id.rpartition("/")[2]
    try:
        found = ask(group_id)
    except SunspotError as error:
        raise SunspotError(
            f"Pulumi destroyed {name!r}, but whether anything is left could not be checked: "
            f"{error}. Look yourself: az resource list --resource-group {group} -o table"
        ) from error
    left = [one for one in found if not _belongs(one, kept)]
    if left:
        raise SunspotError(
            "\n  ".join(
                [
                    f"Pulumi destroyed {name!r}, but this still exists (and may be billed):",
                    *left,
                    f"If none of it is needed: az group delete --name {group}",
                ]
            )
        )


def _belongs(found: str, kept: list[str]) -> bool:
    """Whether a resource is one of those that were kept, or holds or lies in one."""
    this = found.lower().rstrip("/")
    others = [one.lower().rstrip("/") for one in kept]
    return any(this == one or this.startswith(f"{one}/") for one in others if "/providers/" in one)


def told(name: str, protected: list[str]) -> list[str]:
    """What is said of the resources (ARM ids) that outlive a stack; nothing if there are none."""
    if not protected:
        return []
    # The account; what lies in it goes without saying.
    outermost = [
        i for i in protected if not _belongs(i, [other for other in protected if other != i])
    ]
    ids = ", ".join(i.rpartition("/")[2] for i in outermost)
    what = f"kept, as sunspot:storage > protect says: the results ({ids}) in their resource group"
    how = f"they are billed by the GB; to delete them too: sunspot down {name} --delete-storage"
    return [what, how]
