"""Kubernetes' API on the loopback, as far as Sunspot uses it: requests, tokens, web sockets.

A small server with the behaviours that Kubernetes documents: objects with a uid, `Status` objects
as errors, 401 and 403, 404, 409 (AlreadyExists) and 422, strict field validation, dry runs, label
and field selectors, owners that are deleted with what they own (kubernetes.io, "API Concepts" and
"Garbage Collection"). In the operator's place, `pod` makes the pods of a RayCluster.
"""

from __future__ import annotations

import base64
import contextlib
import copy
import hashlib
import json
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import yaml

TOKEN = "kubernetes-token"

# The fields of a RayCluster's spec that KubeRay 1.6 has and Sunspot uses.
FIELDS = frozenset(
    (
        "rayVersion",
        "authOptions",
        "enableInTreeAutoscaling",
        "autoscalerOptions",
        "gcsFaultToleranceOptions",
        "headGroupSpec",
        "workerGroupSpecs",
    )
)

# What a kubelet says of a port on which nothing listens (containerd, portforward).
REFUSED = "connect: connection refused"


class RefusalError(Exception):
    """An answer that is an error."""

    def __init__(self, code: int, reason: str, message: str) -> None:
        super().__init__(message)
        self.code, self.reason = code, reason


def pod(
    cluster: str,
    group: str,
    name: str,
    *,
    phase: str = "Running",
    waiting: dict[str, str] | None = None,
    unschedulable: str = "",
) -> dict[str, Any]:
    """A pod of a RayCluster, as KubeRay labels it; one that runs is ready."""
    is_head = group == "head"
    state = {"waiting": waiting} if waiting else {"running": {}}
    ready = waiting is None and phase == "Running"
    status: dict[str, Any] = {"phase": "Pending" if waiting or unschedulable else phase}
    if unschedulable:
        status["conditions"] = [
            {
                "type": "PodScheduled",
                "status": "False",
                "reason": "Unschedulable",
                "message": unschedulable,
            }
        ]
    else:
        status["containerStatuses"] = [{"name": "ray", "state": state, "ready": ready}]
    return {
        "metadata": {
            "name": name,
            "labels": {
                "ray.io/cluster": cluster,
                "ray.io/node-type": "head" if is_head else "worker",
                "ray.io/group": "headgroup" if is_head else group,
            },
        },
        "spec": {
            "containers": [{"name": "ray", "image": "ray"}],
            "terminationGracePeriodSeconds": 1,
        },
        "status": status,
    }


def node(
    name: str = "n1",
    *,
    cpu: str = "8",
    memory: str = "32Gi",
    labels=None,
    taints=(),
    **devices: str,
) -> dict[str, Any]:
    """A node with this much to give."""
    return {
        "metadata": {"name": name, "labels": labels or {}},
        "spec": {"taints": list(taints)},
        "status": {"allocatable": {"cpu": cpu, "memory": memory, **devices}},
    }


class KubernetesApi:
    """What the server has and was asked; tests set it and look at it.

    `objects` are by their paths. `make_pods`, the operator, gets a RayCluster that is created, and
    returns its pods. `forbidden` has pairs of verb and resource that the user may not; `fields` are
    those that a RayCluster's spec has, None where there is no such kind. `head_ports` leads from a
    port of a head to one of this machine; `logs` has what containers printed, by the pod.
    """

    def __init__(self) -> None:
        self.objects: dict[str, dict[str, Any]] = {}
        self.make_pods: Callable[[dict[str, Any]], list[dict[str, Any]]] = lambda _cluster: []
        self.forbidden: set[tuple[str, str]] = set()
        self.fields: frozenset[str] | None = FIELDS
        self.head_ports: dict[int, int] = {}
        self.logs: dict[str, str] = {}
        self.seen: list[tuple[str, str]] = []
        self.lock = threading.RLock()
        self.numbers = 0
        self.add("/api/v1/namespaces/default", {"metadata": {"name": "default"}})
        self.add("/api/v1/nodes/n1", node())

    def add(self, path: str, made: dict[str, Any]) -> dict[str, Any]:
        """Adds an object at a path."""
        with self.lock:
            self.numbers += 1
            made["metadata"].setdefault("uid", f"uid-{self.numbers}")
            made["metadata"].setdefault("creationTimestamp", f"2026-01-01T00:{self.numbers:02}:00Z")
            self.objects[path] = made
            return made

    def names(self, kind: str) -> list[str]:
        """The names of all objects of a kind, such as "pods"."""
        return [path.rsplit("/", 1)[1] for path in self.objects if path.split("/")[-2] == kind]

    def one(self, kind: str) -> dict[str, Any]:
        """The only object of a kind."""
        (found,) = (one for path, one in self.objects.items() if path.split("/")[-2] == kind)
        return found

    # Requests

    def get(self, path: str, query: dict[str, str]) -> dict[str, Any]:
        if path == "/version":
            return {"gitVersion": "v1.34.0"}
        if path == "/apis/ray.io/v1":
            if self.fields is None:
                raise _not_found(path)
            return {"resources": [{"name": "rayclusters"}]}
        self._authorize("get" if path in self.objects else "list", path)
        if path in self.objects:
            return self.objects[path]
        if path.split("/")[-1] not in KINDS:
            raise _not_found(path)
        return {"items": [one for one in self._below(path) if _is_selected(one, query)]}

    def post(self, path: str, body: dict[str, Any], query: dict[str, str]) -> dict[str, Any]:
        if path.endswith("/selfsubjectaccessreviews"):
            asked = body["spec"]["resourceAttributes"]
            resource = "/".join(filter(None, (asked["resource"], asked.get("subresource"))))
            return {"status": {"allowed": (asked["verb"], resource) not in self.forbidden}}
        self._authorize("create", path)
        self._check_namespace(path)
        if path.endswith("/rayclusters"):
            self._check_fields(body)
        metadata = body["metadata"]
        name = metadata.get("name") or f"{metadata['generateName']}abcde"
        if f"{path}/{name}" in self.objects:
            raise RefusalError(409, "AlreadyExists", f"{name!r} already exists")
        if query.get("dryRun") == "All":
            return body
        made = self.add(f"{path}/{name}", copy.deepcopy(body))
        if path.endswith("/rayclusters"):
            self._operate(path, made)
        return made

    def patch(self, path: str, body: Any) -> dict[str, Any]:
        found = self._existing("patch", path)
        for change in body if isinstance(body, list) else ():
            *where, last = change["path"].strip("/").split("/")
            part: Any = found
            for key in where:
                part = part[int(key) if isinstance(part, list) else key]
            if change["op"] == "test" and part[last] != change["value"]:
                raise RefusalError(422, "Invalid", "the server rejected our request: test failed")
            if change["op"] == "add":
                part[last] = change["value"]
        if isinstance(body, dict) and body.get("metadata", {}).get("finalizers", ()) is None:
            found["metadata"].pop("finalizers", None)
            if "deletionTimestamp" in found["metadata"]:
                self._remove(path)
        if path.split("/")[-2] == "rayclusters":
            self._operate(path.rsplit("/", 1)[0], found)
        return found

    def delete(self, path: str) -> dict[str, Any]:
        found = self._existing("delete", path)
        found["metadata"]["deletionTimestamp"] = "2026-01-01T01:00:00Z"
        if not found["metadata"].get("finalizers"):
            self._remove(path)
        return {"status": "Success"}

    def _existing(self, verb: str, path: str) -> dict[str, Any]:
        self._authorize(verb, path)
        if path not in self.objects:
            raise _not_found(path)
        return self.objects[path]

    def _remove(self, path: str) -> None:
        """Removes an object and what it owns."""
        gone = self.objects.pop(path)
        for other, one in list(self.objects.items()):
            owners = [owner["uid"] for owner in one["metadata"].get("ownerReferences", ())]
            if gone["metadata"]["uid"] in owners:
                self._remove(other)

    def _operate(self, path: str, made: dict[str, Any]) -> None:
        """KubeRay's part: the pods that are to be, which belong to the RayCluster."""
        root = path.replace("/apis/ray.io/v1/", "/api/v1/").replace("/rayclusters", "/pods")
        wanted = {one["metadata"]["name"]: one for one in self.make_pods(made)}
        for name, one in wanted.items():
            if f"{root}/{name}" not in self.objects:
                one["metadata"]["ownerReferences"] = [{"uid": made["metadata"]["uid"]}]
                self.add(f"{root}/{name}", one)
        for other in [path for path in self.objects if path.startswith(f"{root}/")]:
            of = self.objects[other]["metadata"]["labels"]["ray.io/cluster"]
            if of == made["metadata"]["name"] and other.rsplit("/", 1)[1] not in wanted:
                self._remove(other)

    def _below(self, path: str) -> Iterator[dict[str, Any]]:
        for other, one in self.objects.items():
            # All of a kind, in one namespace, or in all of them.
            root, kind = path.rsplit("/", 1)
            if other.rsplit("/", 1)[0] == path or (
                "/namespaces/" not in path and other.startswith(root) and f"/{kind}/" in other
            ):
                yield one

    def _authorize(self, verb: str, path: str) -> None:
        words = path.split("/")
        kind = next((word for word in reversed(words) if word in KINDS), "")
        if (verb, kind) in self.forbidden:
            message = f'{kind} is forbidden: User "ann" cannot {verb} resource "{kind}"'
            raise RefusalError(403, "Forbidden", message)

    def _check_namespace(self, path: str) -> None:
        words = path.split("/")
        namespace = words[words.index("namespaces") + 1]
        if f"/api/v1/namespaces/{namespace}" not in self.objects:
            raise RefusalError(404, "NotFound", f'namespaces "{namespace}" not found')

    def _check_fields(self, body: dict[str, Any]) -> None:
        unknown = sorted(set(body["spec"]) - (self.fields or frozenset()))
        if unknown:
            said = ", ".join(f'unknown field "spec.{name}"' for name in unknown)
            raise RefusalError(400, "BadRequest", f"strict decoding error: {said}")


KINDS = frozenset(
    (
        "pods",
        "secrets",
        "events",
        "nodes",
        "resourcequotas",
        "rayclusters",
        "poddisruptionbudgets",
        "deployments",
        "namespaces",
    )
)


def _not_found(path: str) -> RefusalError:
    return RefusalError(404, "NotFound", f"{path} not found")


def _is_selected(one: dict[str, Any], query: dict[str, str]) -> bool:
    for wish in filter(None, query.get("labelSelector", "").split(",")):
        key, _, value = wish.partition("=")
        if one["metadata"].get("labels", {}).get(key) != value:
            return False
    for wish in filter(None, query.get("fieldSelector", "").split(",")):
        key, _, value = wish.partition("=")
        part: Any = one
        for word in key.split("."):
            part = part.get(word, {})
        if part != value:
            return False
    return True


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    api: KubernetesApi

    def do_GET(self) -> None:
        self._answered(self._get)

    def do_POST(self) -> None:
        self._answered(lambda path, query: self.api.post(path, self._body(), query))

    def do_PATCH(self) -> None:
        self._answered(lambda path, _query: self.api.patch(path, self._body()))

    def do_DELETE(self) -> None:
        self._answered(lambda path, _query: (self._body(), self.api.delete(path))[1])

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        pass

    def _body(self) -> Any:
        return json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)) or b"{}")

    def _answered(self, call: Callable[[str, dict[str, str]], Any]) -> None:
        parts = urlsplit(self.path)
        self.api.seen.append((self.command, parts.path))
        try:
            if self.headers.get("Authorization") != f"Bearer {TOKEN}":
                self._body()
                raise RefusalError(401, "Unauthorized", "Unauthorized")
            with self.api.lock:
                found = call(parts.path, dict(parse_qsl(parts.query)))
            if callable(found):
                found()
                return
            text, code = found if isinstance(found, str) else json.dumps(found), 200
        except RefusalError as refusal:
            status = {
                "kind": "Status",
                "status": "Failure",
                "message": str(refusal),
                "reason": refusal.reason,
                "code": refusal.code,
            }
            text, code = json.dumps(status), refusal.code
        body = text.encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _get(self, path: str, query: dict[str, str]) -> Any:
        words = path.split("/")
        if words[-1] == "portforward":
            self.api._authorize("get", path)
            return lambda: self._forward(int(query["ports"]))
        if words[-1] == "log":
            return self.api.logs.get(words[-2], "")
        return self.api.get(path, query)

    def _forward(self, port: int) -> None:
        """A web socket whose first channel is the port's data, and whose second its errors."""
        key = self.headers["Sec-WebSocket-Key"] + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
        accept = base64.b64encode(hashlib.sha1(key.encode()).digest()).decode()  # noqa: S324
        self.send_response(101)
        for name, value in {
            "Upgrade": "websocket",
            "Connection": "Upgrade",
            "Sec-WebSocket-Accept": accept,
            "Sec-WebSocket-Protocol": "v4.channel.k8s.io",
        }.items():
            self.send_header(name, value)
        self.end_headers()
        self.close_connection = True
        for channel in (0, 1):
            self._send(channel, struct.pack("<H", port))
        if port not in self.api.head_ports:
            self._send(1, f"failed to connect to localhost:{port}: {REFUSED}".encode())
            return
        with socket.create_connection(("127.0.0.1", self.api.head_ports[port])) as to:
            back = threading.Thread(target=self._back, args=(to,), daemon=True)
            back.start()
            with contextlib.suppress(OSError, ValueError, struct.error):
                while data := self._receive():
                    to.sendall(data[1:])
            with contextlib.suppress(OSError):
                to.shutdown(socket.SHUT_RDWR)
            back.join()

    def _back(self, to: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := to.recv(65_536):
                self._send(0, data)
            self.wfile.write(b"\x88\x02\x03\xe8")
            self.wfile.flush()

    def _send(self, channel: int, data: bytes) -> None:
        payload = bytes([channel]) + data
        self.wfile.write(struct.pack("!BBQ", 0x82, 127, len(payload)) + payload)
        self.wfile.flush()

    def _receive(self) -> bytes:
        """The next message of the client, whose frames are masked; empty at its end."""
        first, length = struct.unpack("!BB", self.rfile.read(2))
        length &= 0x7F
        if length == 126:
            (length,) = struct.unpack("!H", self.rfile.read(2))
        elif length == 127:
            (length,) = struct.unpack("!Q", self.rfile.read(8))
        mask, data = self.rfile.read(4), self.rfile.read(length)
        plain = bytes(byte ^ mask[at % 4] for at, byte in enumerate(data))
        return b"" if first & 0x0F == 8 else plain


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Says nothing: clients may go away at any time."""


@contextlib.contextmanager
def served(api: KubernetesApi) -> Iterator[int]:
    """Serves an API while the block lasts; yields the port."""
    bound = type("BoundHandler", (_Handler,), {"api": api})
    with _Server(("127.0.0.1", 0), bound) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server.server_port
        finally:
            server.shutdown()
            thread.join()


def write_kubeconfig(file: Path, port: int, *, token: str = TOKEN, current: str = "here") -> None:
    """A kubeconfig with the contexts "here" and "elsewhere"; nothing answers at the latter."""
    clusters = {"here": port, "elsewhere": 1}
    file.write_text(
        yaml.safe_dump(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "current-context": current,
                "clusters": [
                    {"name": name, "cluster": {"server": f"http://127.0.0.1:{number}"}}
                    for name, number in clusters.items()
                ],
                "users": [{"name": "ann", "user": {"token": token}}],
                "contexts": [
                    {"name": name, "context": {"cluster": name, "user": "ann"}} for name in clusters
                ],
            }
        )
    )
