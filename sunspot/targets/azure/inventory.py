"""The contents of a resource group, from Azure itself and not from Pulumi or Ray.

With a login in the environment it uses Azure's REST API, otherwise the Azure CLI. Pulumi's provider
uses the same logins, so a user who could create the cluster needs nothing else.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sunspot.errors import SunspotError
from sunspot.targets.azure import environment, missing_role
from sunspot.targets.azure.credentials import TIMEOUT_S, Endpoints, Login, az

_GONE = "ResourceGroupNotFound"

Item = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Listing:
    """One list that Azure has of each resource group, by REST and by the Azure CLI.

    Attributes:
        path: what follows the group's id in the URL.
        api_version: the version of the REST API.
        command: what follows `az` on the command line.
    """

    path: str
    api_version: str
    command: tuple[str, ...]


# Azure's REST reference: Resources - List By Resource Group; Network Interfaces - List.
RESOURCES = Listing(path="/resources", api_version="2021-04-01", command=("resource", "list"))
NICS = Listing(
    path="/providers/Microsoft.Network/networkInterfaces",
    api_version="2024-05-01",
    command=("network", "nic", "list"),
)


def items(group_id: str, listing: Listing, endpoints: Endpoints | None = None) -> list[Item] | None:
    """A resource group's items on a list; None if the group does not exist.

    Raises:
        SunspotError: Azure could not be asked.
    """
    if environment.is_given():
        return _by_rest(group_id, listing, endpoints or Endpoints())
    return _by_cli(group_id, listing)


def addresses(group_id: str, endpoints: Endpoints | None = None) -> dict[str, str]:
    """The private address of each VM of a resource group, by the VM's name.

    Raises:
        SunspotError: Azure could not be asked.
    """
    found: dict[str, str] = {}
    for item in items(group_id, NICS, endpoints) or []:
        nic = _flat(item)
        machine = str((nic.get("virtualMachine") or {}).get("id", "")).rpartition("/")[2]
        configurations = [_flat(one) for one in nic.get("ipConfigurations") or []]
        first = next((one for one in configurations if one.get("primary")), None)
        address = (first or next(iter(configurations), {})).get("privateIPAddress")
        if machine and address:
            found[machine] = address
    return found


def _flat(item: Item) -> dict[str, Any]:
    """The item with its properties at the top level, where the CLI has them already."""
    flat = {**item, **(item.get("properties") or {})}
    if "privateIpAddress" in flat:  # the spelling of older versions of the CLI
        flat.setdefault("privateIPAddress", flat["privateIpAddress"])
    return flat


def _by_rest(group_id: str, listing: Listing, endpoints: Endpoints) -> list[Item] | None:
    import requests

    try:
        headers = {"Authorization": f"Bearer {Login(endpoints).token(endpoints.management)}"}
        url = f"{endpoints.management}{group_id}{listing.path}?api-version={listing.api_version}"
        found: list[Item] = []
        while url:
            page = requests.get(url, headers=headers, timeout=TIMEOUT_S)
            if page.status_code == 404 and _GONE in page.text:
                return None
            if page.status_code == 403 and (missing := missing_role.find(_said(page.json()))):
                raise SunspotError(str(missing))
            page.raise_for_status()
            found += _checked(page.json()["value"])
            url = page.json().get("nextLink")
    except (requests.RequestException, KeyError, TypeError, ValueError) as error:
        raise SunspotError(f"Azure did not answer ({error})") from error
    return found


def _said(body: Any) -> str:
    """The message of ARM's error."""
    return str(body["error"]["message"])


def _by_cli(group_id: str, listing: Listing) -> list[Item] | None:
    _, _, subscription, _, group = group_id.split("/")[:5]
    where = ["--subscription", subscription]
    listed = az(*listing.command, "--resource-group", group, *where, "--output", "json")
    if listed.returncode:
        if _GONE in listed.stderr:
            return None
        raise SunspotError(missing_role.explained(f"az says: {' '.join(listed.stderr.split())}"))
    try:
        found = _checked(json.loads(listed.stdout or "[]"))
    except (ValueError, KeyError, TypeError) as error:
        raise SunspotError(f"az did not answer with a list of resources ({error})") from error
    if found:
        return found
    # Some versions give the same answer for a missing group as for an empty one.
    exists = az("group", "exists", "--name", group, *where)
    is_gone = exists.returncode == 0 and exists.stdout.strip() == "false"
    return None if is_gone else []


def _checked(found: Any) -> list[Item]:
    """Returns a list of resources. Raises TypeError or KeyError if it is anything else."""
    for one in found:
        one["id"]
    return list(found)
