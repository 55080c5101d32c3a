"""The Pulumi program without an engine: what it registers, with every option, and what it returns.

Pulumi's mocks do not show options, answer numbers as floats and let two resources have one URN;
the monitor here writes all of it down.
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import pulumi
from pulumi.runtime import mocks as pulumi_mocks
from pulumi.runtime import rpc

SUBSCRIPTION = "11111111-2222-3333-4444-555555555555"
TENANT = "99999999-8888-7777-6666-555555555555"
PROVIDERS = {
    "authorization": "Microsoft.Authorization",
    "compute": "Microsoft.Compute",
    "containerregistry": "Microsoft.ContainerRegistry",
    "keyvault": "Microsoft.KeyVault",
    "managedidentity": "Microsoft.ManagedIdentity",
    "network": "Microsoft.Network",
    "storage": "Microsoft.Storage",
}
# The input that holds a resource's own name, where it has one.
NAME_INPUTS = (
    "vmScaleSetName",
    "vmName",
    "secretName",
    "containerName",
    "roleAssignmentName",
    "roleDefinitionId",
    "blobServicesName",
    "managementPolicyName",
)
# The input that names what a resource lies in, and the kind of that.
PARENT_INPUTS = {"vaultName": "vaults", "accountName": "storageAccounts"}


@dataclass(frozen=True, kw_only=True)
class Registered:
    """One resource as the program registered it. `inputs` are as on the wire, secrets opened."""

    urn: str
    type: str
    name: str
    id: str
    parent: str
    inputs: dict[str, Any]
    secret_inputs: frozenset[str]
    custom: bool
    protect: bool
    ignore_changes: list[str]
    replace_on_changes: list[str]
    delete_before_replace: bool
    depends_on: list[str]
    deleted_with: str

    @property
    def kind(self) -> str:
        """The last part of the type: `VirtualMachine`."""
        return self.type.rsplit(":", 1)[1]


@dataclass
class Run:
    """All that a program registered, in its order, and what it exported."""

    resources: list[Registered] = field(default_factory=list)
    outputs: dict[str, Any] = field(default_factory=dict)
    secret_outputs: set[str] = field(default_factory=set)
    registered_outputs: set[str] = field(default_factory=set)
    invokes: list[str] = field(default_factory=list)

    def of(self, kind: str) -> list[Registered]:
        """The resources of one kind."""
        return [resource for resource in self.resources if resource.kind == kind]

    def one(self, kind: str) -> Registered:
        """The only resource of a kind."""
        (resource,) = self.of(kind)
        return resource

    def named(self, name: str) -> Registered:
        """The only Azure resource of a name."""
        (resource,) = [r for r in self.resources if r.name == name and r.custom]
        return resource

    def by_id(self) -> dict[str, Registered]:
        """The Azure resources by their ids."""
        return {resource.id: resource for resource in self.resources if resource.custom}


class _Azure(pulumi_mocks.Mocks):
    """Answers as Azure would: an id, a name, and what it makes up itself."""

    def __init__(self, run: Run, subnet: Mapping[str, Any], *, silent: bool) -> None:
        self.run = run
        self.subnet = subnet
        self.silent = silent

    def new_resource(self, args: pulumi_mocks.MockResourceArgs) -> tuple[str, dict[str, Any]]:
        if not args.custom:
            return "", {}
        inputs = opened(args.inputs)
        name = own_name(args.name, inputs)
        identifier = arm_id(args.typ, name, inputs)
        made_up = {} if self.silent else _made_up(args.typ, name)
        return identifier, {**_echoed(inputs), "name": name, **made_up}

    def call(
        self, args: pulumi_mocks.MockCallArgs
    ) -> tuple[dict[str, Any], list[tuple[str, str]] | None]:
        self.run.invokes.append(args.token)
        if args.token == "azure-native:network:getSubnet":
            return dict(self.subnet), []
        if args.token == "azure-native:containerregistry:listRegistryCredentials":
            return {"username": "push", "passwords": [{"name": "password", "value": "s3cret"}]}, []
        raise AssertionError(f"unexpected call of {args.token}")


class _Monitor(pulumi_mocks.MockMonitor):
    def __init__(self, mocks: pulumi_mocks.Mocks, run: Run) -> None:
        super().__init__(mocks)
        self.run = run

    def RegisterResource(self, request: Any) -> Any:  # noqa: N802 - gRPC's name
        answer = super().RegisterResource(request)
        if request.type != "pulumi:pulumi:Stack":
            inputs = rpc.deserialize_properties(request.object)
            self.run.resources.append(
                Registered(
                    urn=answer.urn,
                    type=request.type,
                    name=request.name,
                    id=answer.id,
                    parent=request.parent,
                    inputs=opened(inputs),
                    secret_inputs=frozenset(k for k, v in inputs.items() if has_secret(v)),
                    custom=request.custom,
                    protect=request.protect,
                    ignore_changes=list(request.ignoreChanges),
                    replace_on_changes=list(request.replaceOnChanges),
                    delete_before_replace=request.deleteBeforeReplace,
                    depends_on=list(request.dependencies),
                    deleted_with=request.deletedWith,
                )
            )
        return answer

    def RegisterResourceOutputs(self, request: Any) -> Any:  # noqa: N802
        self.run.registered_outputs.add(request.urn)
        return super().RegisterResourceOutputs(request)


def run_program(
    program: Callable[[], Mapping[str, Any]],
    *,
    stack: str = "test",
    config: Mapping[str, str] | None = None,
    subnet: Mapping[str, Any] | None = None,
    preview: bool = False,
    silent: bool = False,
) -> Run:
    """Runs a program that returns its outputs, and waits for all that it registers.

    With `silent`, Azure answers nothing but what it was told.
    """
    run = Run()
    found = {"addressPrefix": "10.1.2.0/24"} if subnet is None else subnet
    answers = _Azure(run, found, silent=silent)
    # Pulumi takes the thread's event loop; each program gets a new one.
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    pulumi.runtime.set_mocks(
        answers,
        project="sunspot",
        stack=stack,
        preview=preview,
        monitor=_Monitor(answers, run),
    )
    pulumi.runtime.set_all_config(dict(config or {}))

    @pulumi.runtime.test
    def evaluate() -> Any:
        outputs = dict(program())
        secrets = {
            name: pulumi.Output.from_input(value).is_secret() for name, value in outputs.items()
        }
        wrapped = pulumi.Output.all(**outputs)

        def keep(values: dict[str, Any]) -> None:
            run.outputs.update(values)

        async def note() -> None:
            run.secret_outputs.update([n for n, secret in secrets.items() if await secret])

        return pulumi.Output.all(wrapped.apply(keep), pulumi.Output.from_input(note()))

    try:
        evaluate()
    finally:
        asyncio.set_event_loop(None)
        loop.close()
    return run


def own_name(logical: str, inputs: Mapping[str, Any]) -> str:
    """The name that Azure will know a resource by."""
    given = [inputs[key] for key in NAME_INPUTS if key in inputs]
    return given[0] if given else f"{logical}1a2b3c4d"


def arm_id(typ: str, name: str, inputs: Mapping[str, Any]) -> str:
    """An id in ARM's form."""
    _, module, kind = typ.split(":")
    root = f"/subscriptions/{SUBSCRIPTION}/resourceGroups"
    if kind == "ResourceGroup":
        return f"{root}/{name}"
    if kind in {"RoleAssignment", "RoleDefinition"}:
        return f"{inputs['scope']}/providers/Microsoft.Authorization/{plural(kind)}/{name}"
    base = f"{root}/{inputs.get('resourceGroupName', 'none')}/providers"
    provider = PROVIDERS.get(module, module)
    for key, parent_kind in PARENT_INPUTS.items():
        if key in inputs:
            middle = "/blobServices/default" if kind == "BlobContainer" else ""
            return f"{base}/{provider}/{parent_kind}/{inputs[key]}{middle}/{plural(kind)}/{name}"
    return f"{base}/{provider}/{plural(kind)}/{name}"


def plural(kind: str) -> str:
    word = kind[0].lower() + kind[1:]
    return {"blobContainer": "containers"}.get(word, f"{word}s")


def _echoed(inputs: dict[str, Any]) -> dict[str, Any]:
    """The inputs as outputs; identities go in as a list and come out as a map."""
    echo = dict(inputs)
    identity = echo.get("identity")
    if isinstance(identity, dict) and isinstance(identity.get("userAssignedIdentities"), list):
        known = {i: {} for i in identity["userAssignedIdentities"]}
        echo["identity"] = {**identity, "userAssignedIdentities": known}
    return echo


def _made_up(typ: str, name: str) -> dict[str, Any]:
    kind = typ.rsplit(":", 1)[1]
    if kind == "UserAssignedIdentity":
        return {
            "principalId": f"principal-of-{name}",
            "clientId": f"client-of-{name}",
            "tenantId": TENANT,
        }
    if kind == "Vault":
        return {"properties": {"vaultUri": f"https://{name}.vault.azure.net/"}}
    if kind == "PublicIPAddress":
        return {"ipAddress": "198.51.100.7"}
    if kind == "NetworkInterface":
        return {"ipConfigurations": [{"name": "ip", "privateIPAddress": "10.1.2.9"}]}
    if kind == "Registry":
        return {"loginServer": f"{name}.azurecr.io"}
    if kind == "Image":
        return {"digest": "sha256:" + "0" * 64}
    return {}


def opened(value: Any) -> Any:
    """The value with every secret in it opened."""
    if isinstance(value, dict):
        if rpc._special_sig_key in value:
            return opened(value.get("value"))
        return {key: opened(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [opened(inner) for inner in value]
    return value


def has_secret(value: Any) -> bool:
    """Whether any part of the value is marked as a secret."""
    if isinstance(value, dict):
        return rpc._special_sig_key in value or any(has_secret(v) for v in value.values())
    return isinstance(value, list) and any(has_secret(inner) for inner in value)


def texts(value: Any) -> Iterator[str]:
    """Every text within the value."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for inner in value.values():
            yield from texts(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from texts(inner)
