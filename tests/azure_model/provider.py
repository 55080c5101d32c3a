"""Pulumi's Azure provider for tests: a plugin that the real engine starts, and a cloud on disk.

`python -m azure_model.provider FOLDER`, with tests/ on the PYTHONPATH, serves the cloud of that
folder, and prints its port as the engine expects. What the engine passes behind the folder is not
needed.
"""
# ruff: noqa: ARG002, N802 - the names and the arguments are gRPC's

import json
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent import futures
from importlib import metadata
from pathlib import Path
from typing import Any

import grpc
from google.protobuf import empty_pb2, json_format, struct_pb2
from pulumi.runtime.proto import plugin_pb2, provider_pb2, provider_pb2_grpc

from azure_model.answers import CALLS, CREDENTIALS, WRITE_ONLY, echo
from azure_model.cloud import Cloud, RefusedError, own_name, part
from azure_model.pulumi_wire import is_known, opened
from azure_model.request_inputs import output_names, problems
from azure_model.resource_ids import id_inputs, kind_of

VERSION = metadata.version("pulumi_azure_native")
THREADS = 16
POLL_S = 0.05
# Held beside a resource, it has the provider go on with it.
IGNORES_CANCEL = "-"
# An answer holds the whole user data of a node.
MESSAGE_BYTES = 64 * 2**20

# What the real provider replaces a resource for (provider/pkg/gen/replacement.go).
MADE_AGAIN = {
    "AgentPool": ("gpuInstanceProfile", "vmSize"),
    "ManagedCluster": ("dnsPrefix", "nodeResourceGroup"),
}

Change = provider_pb2.PropertyDiff.Kind.ValueType
Diff = provider_pb2.PropertyDiff


class AzureProvider(provider_pb2_grpc.ResourceProviderServicer):
    """What the engine asks of a provider, answered from a cloud on disk."""

    def __init__(self, cloud: Cloud) -> None:
        self.cloud = cloud
        self.lock = threading.Lock()
        self.cancelled = threading.Event()

    def Handshake(self, request: Any, context: Any) -> Any:
        return provider_pb2.ProviderHandshakeResponse(
            accept_secrets=True, accept_resources=True, accept_outputs=False
        )

    def GetPluginInfo(self, request: Any, context: Any) -> Any:
        return plugin_pb2.PluginInfo(version=VERSION)

    def CheckConfig(self, request: Any, context: Any) -> Any:
        return provider_pb2.CheckResponse(inputs=request.news)

    def DiffConfig(self, request: Any, context: Any) -> Any:
        return provider_pb2.DiffResponse(changes=provider_pb2.DiffResponse.DIFF_NONE)

    def Configure(self, request: Any, context: Any) -> Any:
        return provider_pb2.ConfigureResponse(
            acceptSecrets=True, supportsPreview=True, acceptResources=True, acceptOutputs=False
        )

    def Check(self, request: Any, context: Any) -> Any:
        token, logical = _type_and_name(request.urn)
        inputs, before = _read(request.news), _read(request.olds)
        *_, name = id_inputs(kind_of(token))
        if name not in inputs:
            inputs[name] = before.get(name) or own_name(kind_of(token), logical)
        failures = [
            provider_pb2.CheckFailure(property=where, reason=reason)
            for where, reason in problems(token, inputs)
        ]
        return provider_pb2.CheckResponse(inputs=_written(inputs), failures=failures)

    def Diff(self, request: Any, context: Any) -> Any:
        token, _ = _type_and_name(request.urn)
        before, after = opened(_read(request.old_inputs)), opened(_read(request.news))
        kind = kind_of(token)
        fixed = {*id_inputs(kind), "location", *MADE_AGAIN.get(kind, ())}
        changes = dict(_changes(before, after, ""))
        replaces = [path for path in changes if path in fixed]
        kinds = provider_pb2.DiffResponse
        return provider_pb2.DiffResponse(
            changes=kinds.DIFF_SOME if changes else kinds.DIFF_NONE,
            replaces=replaces,
            diffs=list({path.partition(".")[0].partition("[")[0] for path in changes}),
            hasDetailedDiff=True,
            detailedDiff={
                path: Diff(kind=_replacing(kind) if path in fixed else kind, inputDiff=True)
                for path, kind in changes.items()
            },
        )

    def Create(self, request: Any, context: Any) -> Any:
        token, logical = _type_and_name(request.urn)
        inputs = _read(request.properties)
        if request.preview:
            return provider_pb2.CreateResponse(
                properties=_written(_outputs(token, echo(kind_of(token), inputs)))
            )
        if not is_known(inputs):
            context.abort(grpc.StatusCode.INTERNAL, f"{logical}: created with unknown values")
        self._take_time(logical, context)
        identifier, answer = self._asked("create", logical, context)(
            lambda: self.cloud.create(kind_of(token), logical, inputs)
        )
        return provider_pb2.CreateResponse(
            id=identifier, properties=_written(_outputs(token, answer))
        )

    def Read(self, request: Any, context: Any) -> Any:
        token, _ = _type_and_name(request.urn)
        kind = kind_of(token)
        with self.lock:
            inputs = self.cloud.read(kind, request.id)
            if inputs is None:
                return provider_pb2.ReadResponse()
            answer = self.cloud.answer(kind, request.id)
        known = _read(request.inputs)
        for path in WRITE_ONLY.get(kind, ()):
            _put(inputs, path, known)
        return provider_pb2.ReadResponse(
            id=request.id, inputs=_written(inputs), properties=_written(_outputs(token, answer))
        )

    def Update(self, request: Any, context: Any) -> Any:
        token, logical = _type_and_name(request.urn)
        inputs = _read(request.news)
        if request.preview:
            return provider_pb2.UpdateResponse(
                properties=_written(_outputs(token, echo(kind_of(token), inputs)))
            )
        answer = self._asked("update", logical, context)(
            lambda: self.cloud.update(kind_of(token), request.id, inputs)
        )
        return provider_pb2.UpdateResponse(properties=_written(_outputs(token, answer)))

    def Delete(self, request: Any, context: Any) -> Any:
        token, logical = _type_and_name(request.urn)
        self._asked("delete", logical, context)(
            lambda: self.cloud.delete(kind_of(token), request.id)
        )
        return empty_pb2.Empty()

    def Invoke(self, request: Any, context: Any) -> Any:
        if request.tok not in CALLS:
            context.abort(grpc.StatusCode.UNIMPLEMENTED, f"no answer to {request.tok}")
        answer = CALLS[request.tok]
        if request.tok == CREDENTIALS and (kubeconfig := self.cloud.kubeconfig()):
            answer = {"kubeconfigs": [{"name": "clusterUser", "value": kubeconfig}]}
        return json_format.ParseDict({"return": answer}, provider_pb2.InvokeResponse())

    def Cancel(self, request: Any, context: Any) -> Any:
        self.cancelled.set()
        return empty_pb2.Empty()

    def _take_time(self, name: str, context: Any) -> None:
        """Waits while a creation is held; ends when it is cancelled, as Azure's provider does."""
        if self.cloud.holds(name):
            self.cloud.note("hold", name)
        while self.cloud.holds(name):
            if self.cancelled.wait(POLL_S) and not self.cloud.holds(IGNORES_CANCEL):
                context.abort(grpc.StatusCode.CANCELLED, f"{name}: context canceled")

    def _asked(self, operation: str, name: str, context: Any) -> Callable[[Callable[[], Any]], Any]:
        """Runs one operation at a time, noted; tells a refusal as Azure's provider does."""

        def run(action: Callable[[], Any]) -> Any:
            with self.lock:
                self.cloud.note(operation, name)
                try:
                    return action()
                except RefusedError as error:
                    refusal = str(error)
            return context.abort(grpc.StatusCode.UNKNOWN, refusal)

        return run


def _type_and_name(urn: str) -> tuple[str, str]:
    # urn:pulumi:STACK::PROJECT::PARENT$TYPE::NAME
    *_, types, name = urn.split("::")
    return types.rsplit("$", 1)[-1], name


def _outputs(token: str, answer: Mapping[str, Any]) -> dict[str, Any]:
    names = output_names(token)
    return {key: value for key, value in answer.items() if key in names}


def _changes(before: Any, after: Any, path: str) -> Iterator[tuple[str, Change]]:
    """Every path at which two inputs differ, and how."""
    if before == after:
        return
    if before is None:
        yield path, Diff.ADD
    elif after is None:
        yield path, Diff.DELETE
    elif isinstance(before, Mapping) and isinstance(after, Mapping):
        for key in sorted({*before, *after}):
            if not key.startswith("__"):
                yield from _changes(before.get(key), after.get(key), _step(path, key))
    elif isinstance(before, list) and isinstance(after, list):
        for index in range(max(len(before), len(after))):
            old, new = (side[index] if index < len(side) else None for side in (before, after))
            yield from _changes(old, new, f"{path}[{index}]")
    else:
        yield path, Diff.UPDATE


def _replacing(kind: Change) -> Change:
    return {
        Diff.ADD: Diff.ADD_REPLACE,
        Diff.DELETE: Diff.DELETE_REPLACE,
        Diff.UPDATE: Diff.UPDATE_REPLACE,
    }[kind]


def _step(path: str, key: str) -> str:
    if not key.isidentifier():
        return f"{path}[{json.dumps(key)}]"
    return f"{path}.{key}" if path else key


def _put(inputs: dict[str, Any], path: str, known: Mapping[str, Any]) -> None:
    """Puts what the engine knows at a path back into what Azure told."""
    value = part(known, path)
    if value is None:
        return
    *steps, last = path.split(".")
    place = inputs
    for step in steps:
        place = place.setdefault(step, {})
    place[last] = value


def _read(wire: struct_pb2.Struct) -> dict[str, Any]:
    return json_format.MessageToDict(wire)


def _written(values: Mapping[str, Any]) -> struct_pb2.Struct:
    return json_format.ParseDict(dict(values), struct_pb2.Struct())


def serve(folder: Path) -> None:
    """Answers until the engine ends this process."""
    options = [
        ("grpc.max_receive_message_length", MESSAGE_BYTES),
        ("grpc.max_send_message_length", MESSAGE_BYTES),
    ]
    server = grpc.server(futures.ThreadPoolExecutor(THREADS), options=options)
    provider_pb2_grpc.add_ResourceProviderServicer_to_server(AzureProvider(Cloud(folder)), server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    signal.signal(signal.SIGTERM, lambda *_: server.stop(grace=None))
    print(port, flush=True)
    server.wait_for_termination()


if __name__ == "__main__":
    serve(Path(sys.argv[1]))
