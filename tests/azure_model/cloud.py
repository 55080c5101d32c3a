"""A cloud that behaves like Azure where our program depends on it, in one file on disk.

It gives ids and addresses, knows what lies in what and what uses what, and refuses what Azure
refuses: a name twice, a reference to nothing, a change of what cannot change, the deletion of what
is in use.
"""

import base64
import json
import secrets
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from azure_model import answers
from azure_model.pulumi_wire import opened
from azure_model.resource_ids import group_of, ids_in, is_within, name_in, resource_id

STATE_FILE = "azure.json"
LOG_FILE = "log.jsonl"
REFUSALS_FILE = "refusals.json"
HELD_FILE = "held.json"
LATE_FILE = "late.json"
KUBECONFIG_FILE = "kubeconfig"

# Made by Azure together with what they are in, so a creation finds them there.
BORN_WITH_PARENT = frozenset({"BlobServiceProperties", "ManagementPolicy"})

# What Azure refuses to change on a resource that exists, though its provider does not know.
FROZEN = {
    # learn.microsoft.com/azure/aks/manage-node-pools, use-system-pools, spot-node-pool.
    "AgentPool": ("maxPods", "osDiskSizeGB", "osDiskType", "scaleSetPriority", "vmSize"),
    "Disk": ("creationData", "location"),
    "StorageAccount": ("isHnsEnabled",),
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
        "Disk",
        "NatGateway",
        "NetworkInterface",
        "NetworkSecurityGroup",
        "PublicIPAddress",
        "VirtualNetwork",
    }
)


# The longest name of a Flexible scale set: its machines have nine characters more, and at most 44.
# Source: Microsoft's "Understand names and instance IDs for Azure Virtual Machine Scale Set VMs".
MAX_SCALE_SET_NAME = 35


# Azure's answer to an assignment of a role that is not replicated yet (pulumi/pulumi-azure#840).
ROLE_UNKNOWN = (
    "Code=RoleDefinitionDoesNotExist Message=The specified role definition does not exist."
)


class RefusedError(Exception):
    """Azure's answer to what it does not do."""


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
        identifier = resource_id(kind, opened(inputs))
        if identifier in resources and kind not in BORN_WITH_PARENT:
            raise RefusedError(f"cannot create already existing resource '{identifier}'")
        _check_references(identifier, inputs, resources)
        if kind == "VirtualMachineScaleSet" and len(name_in(identifier)) > MAX_SCALE_SET_NAME:
            raise RefusedError(f"InvalidParameter: The name {name_in(identifier)!r} is too long.")
        if kind == "RoleAssignment" and self._is_unknown(inputs, resources):
            raise RefusedError(ROLE_UNKNOWN)
        refusal = self._refusals().get(name)
        if refusal is not None:
            raise RefusedError(refusal)
        made_up = answers.made_up(kind, identifier, inputs, secrets.token_hex(4))
        resources[identifier] = {"kind": kind, "inputs": inputs, "made_up": made_up}
        self._save(resources)
        return identifier, _answer(kind, identifier, resources[identifier])

    def read(self, kind: str, identifier: str) -> dict[str, Any] | None:
        """The inputs that a resource has now, without what Azure never tells; None if gone."""
        resources = self.resources()
        found = resources.get(identifier)
        if found is None:
            return None
        inputs = answers.told(kind, found["inputs"])
        if kind == "ManagedCluster":
            # All pools are told here, also those that are resources of their own
            # (pulumi/pulumi-azure-native#1298).
            own = _own_pools(identifier, resources)
            inputs["agentPoolProfiles"] = [*inputs["agentPoolProfiles"], *own.values()]
        return inputs

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
        if kind == "ManagedCluster":
            inputs = _without_own_pools(identifier, before, inputs, resources)
        resources[identifier]["inputs"] = inputs
        self._save(resources)
        return _answer(kind, identifier, resources[identifier])

    def delete(self, kind: str, identifier: str) -> None:
        """Deletes a resource with all that lies in it."""
        resources = self.resources()
        if kind == "Secret":
            raise RefusedError("Forbidden: Caller is not authorized to perform action on resource.")
        gone = {i for i in resources if is_within(i, identifier)}
        if kind in HELD_BY_USERS:
            for other, resource in resources.items():
                if other in gone or resource["kind"] == "RoleAssignment":
                    continue
                if any(is_within(reference, identifier) for reference in ids_in(resource)):
                    raise RefusedError(_in_use(kind, identifier, other))
        self._save({i: r for i, r in resources.items() if i not in gone})

    def change(self, identifier: str, path: str, value: Any) -> None:
        """Changes a resource behind the engine's back."""
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

    def replicate_late(self, assignments: int) -> None:
        """Has so many first assignments of custom roles find them unknown."""
        (self._folder / LATE_FILE).write_text(json.dumps(assignments))

    def _is_unknown(self, inputs: Mapping[str, Any], resources: Mapping[str, Any]) -> bool:
        file = self._folder / LATE_FILE
        left = json.loads(file.read_text()) if file.exists() else 0
        if not left or opened(inputs)["roleDefinitionId"] not in resources:
            return False
        file.write_text(json.dumps(left - 1))
        return True

    def kubeconfig(self) -> str | None:
        """The kubeconfig of the AKS cluster, in base64, if a test has given one."""
        file = self._folder / KUBECONFIG_FILE
        return base64.b64encode(file.read_bytes()).decode() if file.exists() else None

    def hold(self, *names: str) -> None:
        """Has the creation of these resources (names in the program) take until they are let go."""
        new = (self._folder / HELD_FILE).with_suffix(".new")
        new.write_text(json.dumps(names))
        new.replace(self._folder / HELD_FILE)

    def holds(self, name: str) -> bool:
        """Whether the creation of a resource is to take longer."""
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


def part(inputs: Mapping[str, Any], path: str) -> Any:
    """What stands at a path such as `sku.capacity`; None where there is nothing."""
    value: Any = inputs
    for step in path.split("."):
        value = value.get(step) if isinstance(value, Mapping) else None
    return value


def _check_references(
    identifier: str, inputs: Mapping[str, Any], resources: Mapping[str, Any]
) -> None:
    for reference in [*ids_in(opened(inputs)), *({group_of(identifier)} - {identifier})]:
        # A subnet is a part of its network's body.
        owner = reference.partition("/subnets/")[0]
        if owner not in resources:
            raise RefusedError(f"InvalidResourceReference: {identifier} needs {reference}.")


def _own_pools(
    cluster: str, resources: Mapping[str, Mapping[str, Any]]
) -> Mapping[str, dict[str, Any]]:
    """The pools of a cluster that are resources of their own, as the cluster tells of them."""
    return {
        name_in(other): _profile(other, one["inputs"])
        for other, one in resources.items()
        if one["kind"] == "AgentPool" and is_within(other, cluster)
    }


def _without_own_pools(
    cluster: str,
    before: Mapping[str, Any],
    inputs: Mapping[str, Any],
    resources: Mapping[str, Mapping[str, Any]],
) -> dict[str, Any]:
    """What a cluster is to be, if it names only pools that are there.

    (pulumi/pulumi-azure-native#2719 has Azure's answer.)
    """
    own, first = _own_pools(cluster, resources), opened(before)["agentPoolProfiles"]
    known = {*own, *(pool["name"] for pool in first)}
    for pool in opened(inputs)["agentPoolProfiles"]:
        if pool["name"] not in known:
            raise RefusedError(
                "BadRequest: A new agent pool was introduced. Adding agent pools to an existing "
                "cluster is not allowed through managed cluster operations."
            )
    kept = [one for one in inputs["agentPoolProfiles"] if opened(one)["name"] not in own]
    return {**inputs, "agentPoolProfiles": kept}


def _profile(identifier: str, inputs: Mapping[str, Any]) -> dict[str, Any]:
    """A pool as its cluster tells of it."""
    own = ("resourceGroupName", "resourceName", "agentPoolName")
    kept = {key: value for key, value in inputs.items() if key not in own}
    return {**kept, "name": name_in(identifier)}


def _answer(kind: str, identifier: str, resource: Mapping[str, Any]) -> dict[str, Any]:
    return answers.answer(kind, identifier, resource["inputs"], resource["made_up"])


def _in_use(kind: str, identifier: str, user: str) -> str:
    """The refusal to delete what another resource uses; for a NIC in Azure's words.

    They are in hashicorp/terraform-provider-azurerm#8105.
    """
    if kind != "NetworkInterface":
        return f"InUse: {identifier} is in use by {user}."
    return (
        f"NicInUse: Network Interface {identifier} is used by existing resource {user}. In order "
        "to delete the network interface, it must be dissociated from the resource."
    )
