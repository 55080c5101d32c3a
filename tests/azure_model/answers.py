"""What Azure answers about a resource: what it was told, and what it makes up itself."""

import base64
import copy
import uuid
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from azure_model.pulumi_wire import UNKNOWN, opened
from azure_model.resource_ids import TENANT, name_in

PUBLIC_ADDRESS = "198.51.100.7"
FREE_ADDRESS = "10.1.2.9"

# Of a cluster that nothing is asked of.
KUBECONFIG = "apiVersion: v1\nkind: Config\n"

CREDENTIALS = "azure-native:containerservice:listManagedClusterUserCredentials"

# Pulumi's functions -> what they return.
CALLS = {
    "azure-native:network:getSubnet": {"addressPrefix": "10.1.2.0/24"},
    "azure-native:network:getPublicIPAddress": {"ipAddress": PUBLIC_ADDRESS},
    "azure-native:containerregistry:listRegistryCredentials": {
        "username": "push",
        "passwords": [{"name": "password", "value": "s3cret"}],
    },
    CREDENTIALS: {
        "kubeconfigs": [
            {"name": "clusterUser", "value": base64.b64encode(KUBECONFIG.encode()).decode()}
        ]
    },
}

# What Azure takes but never tells again.
WRITE_ONLY = {
    "Secret": ("properties.value",),
    # userData comes only with $expand=userData.
    "VirtualMachine": ("osProfile.customData", "userData"),
    "VirtualMachineScaleSet": ("virtualMachineProfile.osProfile.customData",),
}


def told(kind: str, inputs: Mapping[str, Any]) -> dict[str, Any]:
    """The inputs without what Azure never tells."""
    kept = copy.deepcopy(dict(inputs))
    for path in WRITE_ONLY.get(kind, ()):
        *steps, last = path.split(".")
        place: Any = kept
        with suppress(KeyError):
            for step in steps:
                place = place[step]
            place.pop(last, None)
    return kept


def echo(kind: str, inputs: Mapping[str, Any]) -> dict[str, Any]:
    """The inputs in the form of an answer, as far as they are known."""
    answer = told(kind, inputs)
    identity = answer.get("identity")
    if isinstance(identity, dict) and isinstance(identity.get("userAssignedIdentities"), list):
        # A list on the way in, a map on the way out.
        known = {i: {"clientId": client_of(i)} for i in identity["userAssignedIdentities"]}
        answer["identity"] = (
            UNKNOWN if UNKNOWN in known else {**identity, "userAssignedIdentities": known}
        )
    return answer


def answer(
    kind: str, identifier: str, inputs: Mapping[str, Any], made_up: Mapping[str, Any]
) -> dict[str, Any]:
    """What Azure says of a resource that is there."""
    said = echo(kind, inputs)
    for name, value in made_up.items():
        both = isinstance(value, dict) and isinstance(said.get(name), dict)
        said[name] = {**said[name], **value} if both else value
    return {**said, "name": name_in(identifier), "provisioningState": "Succeeded"}


def made_up(
    kind: str, identifier: str, inputs: Mapping[str, Any], life: str = ""
) -> dict[str, Any]:
    """What Azure makes up of a resource; `life` tells one of that id from the next."""
    name = name_in(identifier)
    match kind:
        case "UserAssignedIdentity":
            principal, client = principal_of(identifier, life), client_of(identifier)
            return {"principalId": principal, "clientId": client, "tenantId": TENANT}
        case "ManagedCluster":
            issuer = f"https://oidc.aks.example/{_uuid(identifier, f'issuer{life}')}/"
            return {"oidcIssuerProfile": {"issuerURL": issuer}, "fqdn": f"{name}.aks.example"}
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
            configurations = [
                {"privateIPAddress": FREE_ADDRESS, **given}
                for given in opened(inputs).get("ipConfigurations", [])
            ]
            return {"ipConfigurations": configurations}
        case "VirtualMachine":
            return {"vmId": _uuid(identifier, f"vm{life}")}
        case "VirtualMachineScaleSet":
            return {"uniqueId": _uuid(identifier, f"scale-set{life}")}
    return {}


def principal_of(identity: str, life: str = "") -> str:
    """The principal of a managed identity; another one when one of the same name is made again."""
    return _uuid(identity, f"principal{life}")


def client_of(identity: str) -> str:
    """The client id of a managed identity."""
    return _uuid(identity, "client")


def _uuid(identifier: str, what: str) -> str:
    return str(uuid.uuid5(uuid.NAMESPACE_URL, f"{what}:{identifier}"))
