"""Pulumi's inputs as the request bodies of ARM, held against the models of Microsoft's own SDKs.

The SDKs keep unknown keys, so a round trip alone proves little: `body` looks every key, enum and
type up in the models, and puts what Pulumi flattens back under `properties`, as its provider does.
"""

import datetime
import enum
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Union, get_args, get_origin

from azure.mgmt.authorization import models as authorization
from azure.mgmt.compute import models as compute
from azure.mgmt.containerregistry import models as containerregistry
from azure.mgmt.containerservice import models as containerservice
from azure.mgmt.keyvault import models as keyvault
from azure.mgmt.msi import models as msi
from azure.mgmt.network import models as network
from azure.mgmt.resource.resources import models as resources
from azure.mgmt.storage import models as storage

from azure_model.resource_ids import id_inputs

# Kind of resource -> the model of its request.
MODELS: dict[str, type] = {
    "AgentPool": containerservice.AgentPool,
    "BastionHost": network.BastionHost,
    "BlobContainer": storage.BlobContainer,
    "BlobServiceProperties": storage.BlobServiceProperties,
    "Disk": compute.Disk,
    "FederatedIdentityCredential": msi.FederatedIdentityCredential,
    "ManagedCluster": containerservice.ManagedCluster,
    "ManagementPolicy": storage.ManagementPolicy,
    "NatGateway": network.NatGateway,
    "NetworkInterface": network.NetworkInterface,
    "NetworkSecurityGroup": network.NetworkSecurityGroup,
    "PublicIPAddress": network.PublicIPAddress,
    "Registry": containerregistry.Registry,
    "ResourceGroup": resources.ResourceGroup,
    "RoleAssignment": authorization.RoleAssignmentCreateParameters,
    "RoleDefinition": authorization.RoleDefinition,
    "Secret": keyvault.SecretCreateOrUpdateParameters,
    "StorageAccount": storage.StorageAccountCreateParameters,
    "UserAssignedIdentity": msi.Identity,
    "Vault": keyvault.VaultCreateOrUpdateParameters,
    "VirtualMachine": compute.VirtualMachine,
    "VirtualMachineScaleSet": compute.VirtualMachineScaleSet,
    "VirtualNetwork": network.VirtualNetwork,
}

# Where Pulumi's name of a property is not ARM's.
RENAMED = {
    "RoleDefinition": {"roleType": "type"},
    "StorageAccount": {"enableHttpsTrafficOnly": "supportsHttpsTrafficOnly"},
}

# Azure's own word on this list: it is old, not complete, and any size may be given.
OPEN_ENUMS = (compute.VirtualMachineSizeTypes,)


class UnfitError(Exception):
    """ARM would not know what it is sent."""


@dataclass(frozen=True)
class Field:
    """A key of a model: where it stands in the body, its type, whether only Azure sets it."""

    path: tuple[str, ...]
    hint: Any
    read_only: bool


def body(kind: str, inputs: Mapping[str, Any]) -> dict[str, Any]:
    """The request body of a resource's inputs; UnfitError for what the model does not know."""
    left_out = id_inputs(kind)  # they go into the request's address
    renamed = RENAMED.get(kind, {})
    kept = {renamed.get(key, key): value for key, value in inputs.items() if key not in left_out}
    return _of_model(kept, MODELS[kind], kind)


def round_trip(kind: str, sent: dict[str, Any]) -> dict[str, Any]:
    """The body as the SDK would send it, having read it."""
    model: Any = MODELS[kind]
    if _is_old(model):
        return model.deserialize(sent).serialize()
    return model._deserialize(sent, []).as_dict(exclude_readonly=True)


def _of_model(value: Any, model: type, where: str) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise UnfitError(f"{where}: {value!r} is not an object")
    known = fields(model)
    made: dict[str, Any] = {}
    for key, inner in value.items():
        if key not in known:
            raise UnfitError(f"{where}.{key}: unknown to {model.__name__}")
        field = known[key]
        if field.read_only:
            raise UnfitError(f"{where}.{key}: is Azure's to set")
        place = made
        for step in field.path[:-1]:
            place = place.setdefault(step, {})
        place[field.path[-1]] = _of_type(inner, field.hint, f"{where}.{key}")
    return made


def _of_type(value: Any, hint: Any, where: str) -> Any:
    choices = [choice for choice in _choices(hint) if choice is not type(None)]
    if isinstance(value, list) and where.endswith(".userAssignedIdentities"):
        value = {identity: {} for identity in value}  # a list to Pulumi, a map to ARM
    enums = [c for c in choices if isinstance(c, type) and issubclass(c, enum.Enum)]
    if enums and enums[0] not in OPEN_ENUMS:
        allowed = {member.value for choice in enums for member in choice}
        if value not in allowed:
            raise UnfitError(f"{where}: {value!r} is not one of {sorted(map(str, allowed))}")
        return value
    (choice,) = [choice for choice in choices if choice not in OPEN_ENUMS]
    return _of_choice(value, choice, where)


def _of_choice(value: Any, choice: Any, where: str) -> Any:
    origin = get_origin(choice)
    if origin is list:
        if not isinstance(value, list):
            raise UnfitError(f"{where}: {value!r} is not a list")
        (item,) = get_args(choice)
        return [_of_type(inner, item, f"{where}[{i}]") for i, inner in enumerate(value)]
    if origin is dict:
        if not isinstance(value, dict):
            raise UnfitError(f"{where}: {value!r} is not a map")
        _, item = get_args(choice)
        return {key: _of_type(inner, item, f"{where}.{key}") for key, inner in value.items()}
    if choice is int and isinstance(value, float) and value.is_integer():
        return int(value)  # every number is a float on Pulumi's wire
    expected = {int: int, float: float, bool: bool, str: str, datetime.datetime: str}.get(choice)
    if expected is None:
        return _of_model(value, choice, where)
    if type(value) is not expected:
        raise UnfitError(f"{where}: {value!r} is not {expected.__name__}")
    return value


@cache
def fields(model: type) -> dict[str, Field]:
    """The keys of a model as Pulumi writes them, those under `properties` among them."""
    found = _old_fields(model) if _is_old(model) else _new_fields(model)
    if "properties" not in found:
        return found
    (inner,) = [c for c in _choices(found["properties"].hint) if c is not type(None)]
    if not isinstance(inner, type):
        return found
    flattened = {
        key: Field(("properties", *field.path), field.hint, field.read_only)
        for key, field in fields(inner).items()
    }
    # Where both have a key ("type"), the one that is not Azure's to set is meant.
    own = {k: f for k, f in found.items() if not (f.read_only and k in flattened)}
    return {**flattened, **own}


def _new_fields(model: Any) -> dict[str, Field]:
    model({})  # the SDK fills its table of fields at the first use
    hints = _hints(model, model.__module__)
    return {
        _as_pulumi_writes(field._rest_name): Field(
            (field._rest_name,), hints[name], getattr(field, "_visibility", None) == ["read"]
        )
        for name, field in model._attr_to_rest_field.items()
    }


def _as_pulumi_writes(key: str) -> str:
    """A key of ARM's in Pulumi's form: of `scale-down-delay`, `scaleDownDelay`."""
    first, *rest = key.split("-")
    return first + "".join(word.capitalize() for word in rest)


def _old_fields(model: Any) -> dict[str, Field]:
    hints = _hints(model.__init__, model.__module__)
    found = {}
    for name, entry in model._attribute_map.items():
        path = tuple(entry["key"].split("."))
        read_only = bool(model._validation.get(name, {}).get("readonly"))
        found[path[-1]] = Field(path, hints.get(name, str), read_only)
    return found


def _is_old(model: Any) -> bool:
    return hasattr(model, "_attribute_map")


def _hints(thing: Any, module: str) -> dict[str, Any]:
    # The SDKs import their own names only for type checkers.
    package = __import__(module.rpartition(".")[0], fromlist=["*"])
    names = {"_models": package, "_types": package, "datetime": datetime, "JSON": Any}
    return typing.get_type_hints(thing, localns=names)


def _choices(hint: Any) -> list[Any]:
    if get_origin(hint) in (Union, types.UnionType):
        return [inner for part in get_args(hint) for inner in _choices(part)]
    return [hint]
