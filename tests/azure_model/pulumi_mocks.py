"""The Pulumi program without an engine: what it registers, with every option, and what it returns.

Pulumi's mocks do not show options, answer numbers as floats and let two resources have one URN;
the monitor here writes all of it down.
"""

import asyncio
import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

import pulumi
from pulumi.runtime import mocks as pulumi_mocks
from pulumi.runtime import rpc

from azure_model import answers
from azure_model.pulumi_wire import has_secret, opened
from azure_model.resource_ids import id_inputs, kind_of, resource_id

# What Azure's provider puts behind the program's name of a resource that is given none.
SUFFIX = "1a2b3c4d"
IMAGE_DIGEST = "sha256:" + "0" * 64


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
    replacement_trigger: str
    delete_before_replace: bool
    depends_on: list[str]
    deleted_with: str
    on_error: list[str]
    before_update: list[str]

    @property
    def kind(self) -> str:
        """The last part of the type: `VirtualMachine`."""
        return kind_of(self.type)


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

    def __init__(self, run: Run, subnet: Mapping[str, Any] | None, *, silent: bool) -> None:
        self.run = run
        self.subnet = subnet
        self.silent = silent

    def new_resource(self, args: pulumi_mocks.MockResourceArgs) -> tuple[str, dict[str, Any]]:
        if not args.custom:
            return "", {}
        kind, inputs = kind_of(args.typ), opened(args.inputs)
        if args.typ.startswith(("kubernetes:", "pulumi:providers:")):
            return args.name, inputs
        if not args.typ.startswith("azure-native:"):
            return _of_docker(args.name, inputs)
        *_, name_input = id_inputs(kind)
        # A preview may not know the names yet of what a resource lies in.
        unnamed = dict.fromkeys(id_inputs(kind), "unknown")
        named = {name_input: f"{args.name}{SUFFIX}", **inputs}
        identifier = resource_id(kind, {**unnamed, **named})
        made_up = {} if self.silent else answers.made_up(kind, identifier, inputs)
        return identifier, answers.answer(kind, identifier, inputs, made_up)

    def call(
        self, args: pulumi_mocks.MockCallArgs
    ) -> tuple[dict[str, Any], list[tuple[str, str]] | None]:
        self.run.invokes.append(args.token)
        if args.token == "azure-native:network:getSubnet" and self.subnet is not None:
            return dict(self.subnet), []
        return dict(answers.CALLS[args.token]), []


def _of_docker(name: str, inputs: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    return name, {**inputs, "digest": IMAGE_DIGEST}


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
                    replacement_trigger=request.replacement_trigger.string_value,
                    delete_before_replace=request.deleteBeforeReplace,
                    depends_on=list(request.dependencies),
                    deleted_with=request.deletedWith,
                    on_error=list(request.hooks.on_error),
                    before_update=list(request.hooks.before_update),
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
    azure = _Azure(run, subnet, silent=silent)
    # Pulumi takes the thread's event loop; each program gets a new one.
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    pulumi.runtime.set_mocks(
        azure,
        project="sunspot",
        stack=stack,
        preview=preview,
        monitor=_Monitor(azure, run),
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
        with _without_aliases():
            evaluate()
    finally:
        asyncio.set_event_loop(None)
        loop.close()
    return run


@contextlib.contextmanager
def _without_aliases() -> Iterator[None]:
    """Leaves out the aliases of resources, which take half of a program's time.

    Azure's SDK gives each resource one for every API version; a program that ours is has none.
    """

    async def none(*_: object) -> list[Any]:
        return []

    with (
        mock.patch("pulumi.resource.collapse_alias_to_urn", lambda alias, *_: alias),
        mock.patch("pulumi.runtime.resource.prepare_aliases", none),
    ):
        yield


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
