"""A cloud that behaves like Azure where our program depends on it, in one file on disk.

It gives ids and addresses, knows what lies in what and what uses what, and refuses what Azure
refuses: a name twice, a reference to nothing, a change of what cannot change, the deletion of what
is in use.
"""

import copy
import json
import re
import secrets
import uuid
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from azure_inputs import UNKNOWN, opened

SUBSCRIPTION = "11111111-2222-3333-4444-555555555555"
TENANT = "99999999-8888-7777-6666-555555555555"
PUBLIC_ADDRESS = "198.51.100.7"
FREE_ADDRESS = "10.1.2.9"

STATE_FILE = "azure.json"
LOG_FILE = "log.jsonl"
REFUSALS_FILE = "refusals.json"
HELD_FILE = "held.json"

_ROOT = f"/subscriptions/{SUBSCRIPTION}"
_GROUP = f"{_ROOT}/resourceGroups/{{resourceGroupName}}"
_ACCOUNT = f"{_GROUP}/providers/Microsoft.Storage/storageAccounts/{{accountName}}"
_VAULT = f"{_GROUP}/providers/Microsoft.KeyVault/vaults/{{vaultName}}"
_NETWORK = f"{_GROUP}/providers/Microsoft.Network"
_COMPUTE = f"{_GROUP}/providers/Microsoft.Compute"

# Kind -> its address. The last name in it is the resource's own.
ADDRESSES = {
    "BastionHost": f"{_NETWORK}/bastionHosts/{{bastionHostName}}",
    "BlobContainer": f"{_ACCOUNT}/blobServices/default/containers/{{containerName}}",
    "BlobServiceProperties": f"{_ACCOUNT}/blobServices/{{blobServicesName}}",
    "ManagementPolicy": f"{_ACCOUNT}/managementPolicies/{{managementPolicyName}}",
    "NatGateway": f"{_NETWORK}/natGateways/{{natGatewayName}}",
    "NetworkInterface": f"{_NETWORK}/networkInterfaces/{{networkInterfaceName}}",
    "NetworkSecurityGroup": f"{_NETWORK}/networkSecurityGroups/{{networkSecurityGroupName}}",
    "PublicIPAddress": f"{_NETWORK}/publicIPAddresses/{{publicIpAddressName}}",
    "Registry": f"{_GROUP}/providers/Microsoft.ContainerRegistry/registries/{{registryName}}",
    "ResourceGroup": _GROUP,
    "RoleAssignment": (
        "{scope}/providers/Microsoft.Authorization/roleAssignments/{roleAssignmentName}"
    ),
    "Secret": f"{_VAULT}/secrets/{{secretName}}",
    "StorageAccount": _ACCOUNT,
    "UserAssignedIdentity": (
        f"{_GROUP}/providers/Microsoft.ManagedIdentity/userAssignedIdentities/{{resourceName}}"
    ),
    "Vault": _VAULT,
    "VirtualMachine": f"{_COMPUTE}/virtualMachines/{{vmName}}",
    "VirtualMachineScaleSet": f"{_COMPUTE}/virtualMachineScaleSets/{{vmScaleSetName}}",
    "VirtualNetwork": f"{_NETWORK}/virtualNetworks/{{virtualNetworkName}}",
}

# Made by Azure together with what they are in, so a creation finds them there.
BORN_WITH_PARENT = frozenset({"BlobServiceProperties", "ManagementPolicy"})

# What Azure takes but never tells again.
WRITE_ONLY = {
    "Secret": ("properties.value",),
    "VirtualMachine": ("osProfile.customData",),
    "VirtualMachineScaleSet": ("virtualMachineProfile.osProfile.customData",),
}

# What Azure refuses to change on a resource that exists, though its provider does not know.
FROZEN = {
    "VirtualMachine": (
        "osProfile.adminUsername",
        "osProfile.computerName",
        "osProfile.customData",
        "osProfile.linuxConfiguration",
        "storageProfile.imageReference",
    ),
    "VirtualMachineScaleSet": (
        "orchestrationMode",
        "platformFaultDomainCount",
        "singlePlacementGroup",
        "virtualMachineProfile.priority",
        "virtualMachineProfile.evictionPolicy",
    ),
}

# What Azure does not delete while something uses it.
HELD_BY_USERS = frozenset(
    {
        "NatGateway",
        "NetworkInterface",
        "NetworkSecurityGroup",
        "PublicIPAddress",
        "VirtualNetwork",
    }
)


class RefusedError(Exception):
    """Azure's answer to what it does not do."""


def kind_of(token: str) -> str:
    """The last part of a type: `VirtualMachine`."""
    return token.rsplit(":", 1)[1]


def address_inputs(kind: str) -> list[str]:
    """The inputs that make up a resource's address, its own name last."""
    return re.findall(r"\{(\w+)\}", ADDRESSES[kind])


def own_name(kind: str, logical: str) -> str:
    """A name for a resource that was given none: the program's, and some random letters."""
    return f"{logical}{secrets.token_hex(4)}" if kind != "RoleAssignment" else str(uuid.uuid4())


class Cloud:
    """The resources of one subscription, by their ids.

    One process writes it at a time; within it, callers hold a lock.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._file = folder / STATE_FILE

    def resources(self) -> dict[str, dict[str, Any]]:
        """Every resource: id -> kind, inputs as on the wire, what Azure made up."""
        return json.loads(self._file.read_text())["resources"] if self._file.exists() else {}

    def create(self, kind: str, name: str, inputs: dict[str, Any]) -> tuple[str, dict[str, Any]]:
        """Makes a resource; its id and what Azure answers. `name` is the program's."""
        resources = self.resources()
        identifier = _address(kind, inputs)
        if identifier in resources and kind not in BORN_WITH_PARENT:
            raise RefusedError(f"cannot create already existing resource '{identifier}'")
        _check_references(identifier, inputs, resources)
        refusal = self._refusals().get(name)
        if refusal is not None:
            raise RefusedError(refusal)
        made_up = _made_up(kind, identifier, inputs)
        resources[identifier] = {"kind": kind, "inputs": inputs, "made_up": made_up}
        self._save(resources)
        return identifier, _answer(kind, identifier, resources[identifier])

    def read(self, kind: str, identifier: str) -> dict[str, Any] | None:
        """The inputs that a resource has now, without what Azure never tells; None if gone."""
        found = self.resources().get(identifier)
        return None if found is None else _told(kind, found["inputs"])

    def answer(self, kind: str, identifier: str) -> dict[str, Any]:
        """What Azure says of a resource that is there."""
        return _answer(kind, identifier, self.resources()[identifier])

    def update(self, kind: str, identifier: str, inputs: dict[str, Any]) -> dict[str, Any]:
        """Changes a resource."""
        resources = self.resources()
        if identifier not in resources:
            raise RefusedError(f"ResourceNotFound: The Resource '{identifier}' was not found.")
        before, after = opened(resources[identifier]["inputs"]), opened(inputs)
        for path in FROZEN.get(kind, ()):
            if part(before, path) != part(after, path):
                raise RefusedError(
                    f"PropertyChangeNotAllowed: Changing property '{path}' is not allowed."
                )
        _check_references(identifier, inputs, resources)
        resources[identifier]["inputs"] = inputs
        self._save(resources)
        return _answer(kind, identifier, resources[identifier])

    def delete(self, kind: str, identifier: str) -> None:
        """Deletes a resource with all that lies in it."""
        resources = self.resources()
        if kind == "Secret":
            raise RefusedError("Forbidden: Caller is not authorized to perform action on resource.")
        gone = {i for i in resources if _is_within(i, identifier)}
        if kind in HELD_BY_USERS:
            for other, resource in resources.items():
                if other in gone or resource["kind"] == "RoleAssignment":
                    continue
                if any(_is_within(reference, identifier) for reference in _references(resource)):
                    raise RefusedError(f"InUse: {identifier} is in use by {other}.")
        self._save({i: r for i, r in resources.items() if i not in gone})

    def change(self, identifier: str, path: str, value: Any) -> None:
        """What somebody else did to a resource."""
        resources = self.resources()
        *steps, last = path.split(".")
        place = resources[identifier]["inputs"]
        for step in steps:
            place = place[step]
        place[last] = value
        self._save(resources)

    def refuse(self, refusals: Mapping[str, str]) -> None:
        """Has the creation of resources fail from now on: name in the program -> message."""
        (self._folder / REFUSALS_FILE).write_text(json.dumps(dict(refusals)))

    def hold(self, *names: str) -> None:
        """Has the creation of these resources (names in the program) take until they are let go."""
        new = (self._folder / HELD_FILE).with_suffix(".new")
        new.write_text(json.dumps(names))
        new.replace(self._folder / HELD_FILE)

    def holds(self, name: str) -> bool:
        """Whether the creation of a resource is to go on."""
        file = self._folder / HELD_FILE
        return file.exists() and name in json.loads(file.read_text())

    def note(self, operation: str, name: str) -> None:
        """Writes down what was asked of Azure."""
        with (self._folder / LOG_FILE).open("a") as log:
            log.write(json.dumps([operation, name]) + "\n")

    def take_notes(self) -> list[tuple[str, str]]:
        """All that was asked since the last call: operation, and name in the program."""
        log = self._folder / LOG_FILE
        lines = log.read_text().splitlines() if log.exists() else []
        log.write_text("")
        return [(operation, name) for operation, name in map(json.loads, lines)]

    def _refusals(self) -> dict[str, str]:
        file = self._folder / REFUSALS_FILE
        return json.loads(file.read_text()) if file.exists() else {}

    def _save(self, resources: Mapping[str, Any]) -> None:
        new = self._file.with_suffix(".new")
        new.write_text(json.dumps({"resources": resources}))
        new.replace(self._file)


def echo(kind: str, inputs: Mapping[str, Any]) -> dict[str, Any]:
    """The inputs in the form of an answer, as far as they are known."""
    answer = _told(kind, inputs)
    identity = answer.get("identity")
    if isinstance(identity, dict) and isinstance(identity.get("userAssignedIdentities"), list):
        # A list on the way in, a map on the way out.
        known = {i: {"clientId": _uuid(i, "client")} for i in identity["userAssignedIdentities"]}
        answer["identity"] = (
            UNKNOWN if UNKNOWN in known else {**identity, "userAssignedIdentities": known}
        )
    return answer


def part(inputs: Mapping[str, Any], path: str) -> Any:
    """What stands at a path such as `sku.capacity`; None where there is nothing."""
    value: Any = inputs
    for step in path.split("."):
        value = value.get(step) if isinstance(value, Mapping) else None
    return value


def _address(kind: str, inputs: Mapping[str, Any]) -> str:
    return ADDRESSES[kind].format_map(opened(inputs))


def _is_within(identifier: str, outer: str) -> bool:
    return identifier == outer or identifier.startswith(f"{outer}/")


def _references(value: Any) -> Iterator[str]:
    """Every id of something in a resource group that a value names."""
    if isinstance(value, str):
        if value.startswith(f"{_ROOT}/resourceGroups/"):
            yield value
    elif isinstance(value, Mapping):
        for inner in value.values():
            yield from _references(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _references(inner)


def _check_references(
    identifier: str, inputs: Mapping[str, Any], resources: Mapping[str, Any]
) -> None:
    group = "/".join(identifier.split("/")[: _GROUP.count("/") + 1])
    for reference in [*_references(opened(inputs)), *({group} - {identifier})]:
        # A subnet is a part of its network's body.
        owner = reference.partition("/subnets/")[0]
        if owner not in resources:
            raise RefusedError(f"InvalidResourceReference: {identifier} needs {reference}.")


def _told(kind: str, inputs: Mapping[str, Any]) -> dict[str, Any]:
    kept = copy.deepcopy(dict(inputs))
    for path in WRITE_ONLY.get(kind, ()):
        *steps, last = path.split(".")
        place: Any = kept
        with suppress(KeyError):
            for step in steps:
                place = place[step]
            place.pop(last, None)
    return kept


def _answer(kind: str, identifier: str, resource: Mapping[str, Any]) -> dict[str, Any]:
    answer = echo(kind, resource["inputs"])
    for name, value in resource["made_up"].items():
        both = isinstance(value, dict) and isinstance(answer.get(name), dict)
        answer[name] = {**answer[name], **value} if both else value
    return {**answer, "name": identifier.rsplit("/", 1)[1], "provisioningState": "Succeeded"}


def _made_up(kind: str, identifier: str, inputs: Mapping[str, Any]) -> dict[str, Any]:
    name = identifier.rsplit("/", 1)[1]
    match kind:
        case "UserAssignedIdentity":
            # Another one each time, as in Azure, though the name may be the same.
            principal, client = str(uuid.uuid4()), _uuid(identifier, "client")
            return {"principalId": principal, "clientId": client, "tenantId": TENANT}
        case "Vault":
            return {"properties": {"vaultUri": f"https://{name}.vault.azure.net/"}}
        case "StorageAccount":
            ends = {end: f"https://{name}.{end}.core.windows.net/" for end in ("blob", "dfs")}
            return {"primaryEndpoints": ends}
        case "Registry":
            return {"loginServer": f"{name}.azurecr.io"}
        case "PublicIPAddress":
            return {"ipAddress": PUBLIC_ADDRESS}
        case "NetworkInterface":
            cards = [
                {"privateIPAddress": FREE_ADDRESS, **card}
                for card in opened(inputs).get("ipConfigurations", [])
            ]
            return {"ipConfigurations": cards}
        case "VirtualMachine":
            return {"vmId": str(uuid.uuid4())}
        case "VirtualMachineScaleSet":
            return {"uniqueId": str(uuid.uuid4())}
    return {}


def _uuid(identifier: str, what: str) -> str:
    return str(uuid.uuid5(uuid.NAMESPACE_URL, f"{what}:{identifier}"))


def is_known(value: Any) -> bool:
    """Whether a value has no part that the engine does not know yet."""
    if isinstance(value, Mapping):
        return all(is_known(inner) for inner in value.values())
    if isinstance(value, list):
        return all(is_known(inner) for inner in value)
    return value != UNKNOWN
