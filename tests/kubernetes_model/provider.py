"""A stand-in for Pulumi's Kubernetes provider: each object goes to an API server as it is.

`python -P -m kubernetes_model.provider FOLDER` prints its port as the engine expects. A Helm
release is only written down (FOLDER/releases.json): no chart can be had here. Where there is a file
FOLDER/unreachable, nothing can be read from the cluster (pulumi-kubernetes#1522).
"""
# ruff: noqa: ARG002, N802 - the names and the arguments are gRPC's

import json
import signal
import sys
import threading
from collections.abc import Iterator, Mapping
from concurrent import futures
from importlib import metadata
from pathlib import Path
from typing import Any

import grpc
from azure_model.pulumi_wire import opened
from google.protobuf import empty_pb2, json_format, struct_pb2
from pulumi.runtime.proto import plugin_pb2, provider_pb2, provider_pb2_grpc

from kubernetes_model import api

VERSION = metadata.version("pulumi_kubernetes")
THREADS = 8
LOG_FILE = "log.jsonl"
RELEASES_FILE = "releases.json"
UNREACHABLE = "unreachable"
# What is read-only, or the engine's.
_NOT_SENT = ("status", "__defaults")


class KubernetesProvider(provider_pb2_grpc.ResourceProviderServicer):
    """What the engine asks of a provider."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.lock = threading.Lock()
        self.objects: api.Objects | None = None

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
        kubeconfig = opened(_read(request.args)).get("kubeconfig")
        # A cluster that a preview does not know yet.
        if isinstance(kubeconfig, str) and "apiVersion" in kubeconfig:
            self.objects = api.of(kubeconfig, self.folder)
        return provider_pb2.ConfigureResponse(
            acceptSecrets=True, supportsPreview=True, acceptResources=True, acceptOutputs=False
        )

    def Check(self, request: Any, context: Any) -> Any:
        return provider_pb2.CheckResponse(inputs=request.news)

    def Diff(self, request: Any, context: Any) -> Any:
        before, after = opened(_read(request.old_inputs)), opened(_read(request.news))
        changed = sorted(k for k in {*before, *after} if before.get(k) != after.get(k))
        kinds = provider_pb2.DiffResponse
        return provider_pb2.DiffResponse(
            changes=kinds.DIFF_SOME if changed else kinds.DIFF_NONE,
            replaces=["metadata"] if _moved(before, after) else [],
            diffs=changed,
            deleteBeforeReplace=True,
        )

    def Create(self, request: Any, context: Any) -> Any:
        if request.preview:
            return provider_pb2.CreateResponse(properties=request.properties)
        identifier = self._send("create", request.urn, request.properties, context)
        return provider_pb2.CreateResponse(id=identifier, properties=request.properties)

    def Read(self, request: Any, context: Any) -> Any:
        if (self.folder / UNREACHABLE).exists():
            context.abort(grpc.StatusCode.UNKNOWN, "configured Kubernetes cluster is unreachable")
        found = _object(request.inputs)
        if self.objects is not None and not _is_release(request.urn):
            with self.lock:
                if self.objects.read(found) is None:
                    return provider_pb2.ReadResponse()
        return provider_pb2.ReadResponse(
            id=request.id, inputs=request.inputs, properties=request.properties
        )

    def Update(self, request: Any, context: Any) -> Any:
        if not request.preview:
            self._send("update", request.urn, request.news, context)
        return provider_pb2.UpdateResponse(properties=request.news)

    def Delete(self, request: Any, context: Any) -> Any:
        with self.lock:
            self._note("delete", request.urn)
            if self.objects is not None and not _is_release(request.urn):
                self.objects.delete(_object(request.properties))
        return empty_pb2.Empty()

    def Cancel(self, request: Any, context: Any) -> Any:
        return empty_pb2.Empty()

    def _send(self, operation: str, urn: str, properties: Any, context: Any) -> str:
        with self.lock:
            self._note(operation, urn)
            if _is_release(urn):
                return self._release(opened(_read(properties)))
            if self.objects is None:
                return context.abort(grpc.StatusCode.UNKNOWN, f"{urn}: no cluster is known")
            found = _object(properties)
            try:
                self.objects.apply(found)
            except api.RefusedError as error:
                refusal = str(error)
            else:
                return api.key(found)
        return context.abort(grpc.StatusCode.UNKNOWN, refusal)

    def _release(self, release: Mapping[str, Any]) -> str:
        file = self.folder / RELEASES_FILE
        kept = json.loads(file.read_text()) if file.exists() else {}
        name = f"{release['namespace']}/{release['name']}"
        file.write_text(json.dumps({**kept, name: dict(release)}))
        return name

    def _note(self, operation: str, urn: str) -> None:
        with (self.folder / LOG_FILE).open("a") as log:
            log.write(json.dumps([operation, urn.rsplit("::", 1)[1]]) + "\n")


def _is_release(urn: str) -> bool:
    return "helm.sh" in urn


def _object(properties: Any) -> dict[str, Any]:
    """The object as Kubernetes knows it."""
    found = {k: v for k, v in opened(_read(properties)).items() if k not in _NOT_SENT}
    return dict(_whole(found))


def _whole(value: Any) -> Any:
    """The value with whole numbers as such: the engine's wire has only fractions."""
    if isinstance(value, Mapping):
        return {key: _whole(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_whole(inner) for inner in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _moved(before: Mapping[str, Any], after: Mapping[str, Any]) -> bool:
    return any(
        before.get("metadata", {}).get(key) != after.get("metadata", {}).get(key)
        for key in ("name", "namespace")
    )


def notes(folder: Path) -> Iterator[tuple[str, str]]:
    """What was asked of Kubernetes: operation, and name in the program."""
    log = folder / LOG_FILE
    for line in log.read_text().splitlines() if log.exists() else []:
        operation, name = json.loads(line)
        yield operation, name


def _read(wire: struct_pb2.Struct) -> dict[str, Any]:
    return json_format.MessageToDict(wire)


def serve(folder: Path) -> None:
    """Answers until the engine ends this process."""
    server = grpc.server(futures.ThreadPoolExecutor(THREADS))
    provider = KubernetesProvider(folder)
    provider_pb2_grpc.add_ResourceProviderServicer_to_server(provider, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    signal.signal(signal.SIGTERM, lambda *_: server.stop(grace=None))
    print(port, flush=True)
    server.wait_for_termination()


if __name__ == "__main__":
    serve(Path(sys.argv[1]))
