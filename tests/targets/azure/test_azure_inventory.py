"""What Azure still has, asked by its REST API and by the Azure CLI; both are stand-ins."""

import json

import pytest
from azure_model.http_service import Reply, serving
from azure_model.pulumi_state import GROUP
from azure_model.resource_ids import SUBSCRIPTION

from sunspot.errors import SunspotError
from sunspot.targets.azure.credentials import Endpoints
from sunspot.targets.azure.inventory import addresses
from sunspot.targets.azure.remaining import remaining


def by_rest(principal, pages, ask=remaining):
    """Asks Azure's login and its REST API; the latter's pages: path -> (status, body)."""

    def answer(request):
        if request.headers["Authorization"] != "Bearer t0":
            return Reply(401, {})
        return Reply(*pages[request.path])

    with serving(answer) as address:
        for _, body in pages.values():
            if "nextLink" in body:
                body["nextLink"] = address + body["nextLink"]
        return ask(GROUP, Endpoints(login=principal.url, management=address))


def test_azure_is_asked_page_by_page(principal):
    pages = {
        f"{GROUP}/resources": (200, {"value": [{"id": "a"}], "nextLink": "/more"}),
        "/more": (200, {"value": [{"id": "b"}]}),
    }
    assert by_rest(principal, pages) == ["a", "b"]


@pytest.mark.parametrize(
    ("status", "body", "left"),
    [
        (404, {"error": {"code": "ResourceGroupNotFound"}}, []),
        (200, {"value": []}, [GROUP]),
    ],
)
def test_a_group_that_is_gone_or_empty(principal, status, body, left):
    assert by_rest(principal, {f"{GROUP}/resources": (status, body)}) == left


@pytest.mark.parametrize("status", [401, 404, 500])
def test_an_answer_that_says_nothing_is_an_error(principal, status):
    with pytest.raises(SunspotError, match="did not answer"):
        by_rest(
            principal, {f"{GROUP}/resources": (status, {"error": {"code": "SubscriptionNotFound"}})}
        )


def nic(machine, *addresses, primary=0):
    """A network interface as Azure's REST API lists it."""
    configurations = [
        {"properties": {"privateIPAddress": address, "primary": number == primary}}
        for number, address in enumerate(addresses)
    ]
    vm = f"{GROUP.upper()}/providers/Microsoft.Compute/virtualMachines/{machine}"
    attached = {"virtualMachine": {"id": vm}} if machine else {}
    return {"id": "x", "properties": {**attached, "ipConfigurations": configurations}}


def test_the_addresses_of_machines_by_rest(principal):
    path = f"{GROUP}/providers/Microsoft.Network/networkInterfaces"
    first = [nic("vm_a", "10.0.0.5"), nic(None, "10.0.0.6"), nic("starting")]
    pages = {
        path: (200, {"value": first, "nextLink": "/more"}),
        "/more": (200, {"value": [nic("vm_b", "10.0.0.7", "10.0.0.8", primary=1)]}),
    }
    assert by_rest(principal, pages, addresses) == {"vm_a": "10.0.0.5", "vm_b": "10.0.0.8"}
    gone = {path: (404, {"error": {"code": "ResourceGroupNotFound"}})}
    assert by_rest(principal, gone, addresses) == {}


@pytest.fixture
def az(no_login, tmp_path, monkeypatch):
    """Puts an `az` on the PATH that is this script."""

    def write(script):
        tool = tmp_path / "az"
        tool.write_text(f"#!/bin/sh\n{script}\n")
        tool.chmod(0o755)
        monkeypatch.setenv("PATH", str(tmp_path))

    return write


@pytest.mark.parametrize(
    ("script", "left"),
    [
        ("""echo '[{"id": "a"}]'""", ["a"]),
        ("echo '(ResourceGroupNotFound) gone' >&2; exit 3", []),
        ('[ "$1" = group ] && echo false || echo "[]"', []),
        ('[ "$1" = group ] && echo true || echo "[]"', [GROUP]),
    ],
)
def test_the_azure_cli_is_asked(az, script, left):
    az(script)
    assert remaining(GROUP) == left


@pytest.mark.parametrize("key", ["privateIPAddress", "privateIpAddress"])
def test_the_addresses_of_machines_by_the_azure_cli(az, key):
    vm = f"{GROUP}/providers/Microsoft.Compute/virtualMachines/vm_a"
    nic = {"id": "x", "virtualMachine": {"id": vm}, "ipConfigurations": [{key: "10.0.0.5"}]}
    free = {"id": "y", "virtualMachine": None, "ipConfigurations": [{key: "10.0.0.6"}]}
    wanted = (
        f"network nic list --resource-group sunspot-x --subscription {SUBSCRIPTION} --output json"
    )
    az(f"""[ "$*" = "{wanted}" ] && echo '{json.dumps([nic, free])}' || exit 9""")
    assert addresses(GROUP) == {"vm_a": "10.0.0.5"}


def test_an_azure_cli_that_fails_or_is_missing(az, tmp_path, monkeypatch):
    az("echo 'Please run az login' >&2; exit 1")
    with pytest.raises(SunspotError, match="az login"):
        remaining(GROUP)
    az("echo no json")
    with pytest.raises(SunspotError, match="list of resources"):
        remaining(GROUP)
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    with pytest.raises(SunspotError, match="no Azure CLI"):
        remaining(GROUP)
