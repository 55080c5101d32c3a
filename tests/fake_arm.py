"""A stand-in for Azure Resource Manager: scale sets and their VMs, in its documented shapes.

Lists come in pages; a change of capacity is taken with 202 and an Azure-AsyncOperation address, a
deletion with 202 and a Location; an old If-Match is a 412; errors have ARM's body. It also gives
out the access tokens, as IMDS does. Scripted answers (`refusals`, `failures`) go first.
"""

from __future__ import annotations

import itertools
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

SUBSCRIPTION = "11111111-2222-3333-4444-555555555555"
GROUP = "sunspot-test1a2b3c4d"
HEAD = "sunspot-test-head"
TOKEN = "token-of-the-head"
PAGE = 2

PROVIDERS = f"/subscriptions/{SUBSCRIPTION}/resourceGroups/{GROUP}/providers/Microsoft.Compute"
OPERATIONS = f"/subscriptions/{SUBSCRIPTION}/providers/Microsoft.Compute/locations/uksouth"


@dataclass
class ScaleSet:
    name: str
    capacity: int = 0
    revision: int = 1

    def body(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "etag": f'"{self.revision}"',
            "sku": {"name": "Standard_D4s_v5", "tier": "Standard", "capacity": self.capacity},
            "properties": {"orchestrationMode": "Flexible", "provisioningState": "Succeeded"},
        }


@dataclass
class Vm:
    name: str
    scale_set: str | None
    state: str = "Creating"


@dataclass
class Operation:
    """Answers `polls` times that it is going on; then `error` tells how it ended."""

    error: dict[str, Any] | None = None
    polls: int = 1
    then: Callable[[], None] = lambda: None


@dataclass
class Reply:
    status: int
    body: Any = None
    headers: dict[str, str] = field(default_factory=dict)


@dataclass
class Arm:
    """The state of one resource group, and what is to happen in it.

    `refusals`: by scale set, the error of its next launches: told at once (`status` 4xx), or after
    the VMs were begun (`status` 202). `failures`: answers to any next request. `on_boot` and
    `on_delete` hear of VMs, outside of the lock.
    """

    url: str = ""
    sets: dict[str, ScaleSet] = field(default_factory=dict)
    vms: dict[str, Vm] = field(default_factory=dict)
    refusals: dict[str, list[tuple[int, str, str]]] = field(default_factory=dict)
    failures: list[Reply] = field(default_factory=list)
    on_boot: Callable[[Vm], None] = lambda _: None
    on_delete: Callable[[str], None] = lambda _: None
    before_patch: Callable[[ScaleSet], None] = lambda _: None
    requests: list[tuple[str, str]] = field(default_factory=list)
    operations: dict[str, Operation] = field(default_factory=dict)
    lock: threading.RLock = field(default_factory=threading.RLock)
    serial: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    def add(self, *names: str) -> None:
        for name in names:
            self.sets[name] = ScaleSet(name)

    def loses(self, *names: str) -> bool:
        """Whether these machines go within ten seconds."""
        waiting = threading.Event()
        for _ in range(200):
            if self.vms.keys().isdisjoint(names):
                return True
            waiting.wait(0.05)
        return False

    def answer(self, method: str, target: str, headers: dict[str, str], body: Any) -> Reply:
        parts = urlsplit(target)
        query = {name: values[0] for name, values in parse_qs(parts.query).items()}
        if parts.path == "/metadata/identity/oauth2/token":
            return Reply(200, {"access_token": TOKEN, "expires_on": "99999999999"})
        with self.lock:
            self.requests.append((method, parts.path))
            if headers.get("authorization") != f"Bearer {TOKEN}":
                return _error(401, "AuthenticationFailed", "no token")
            if self.failures:
                return self.failures.pop(0)
            if parts.path.startswith(OPERATIONS):
                return self._operation(parts.path)
            if "api-version" not in query:
                return _error(400, "MissingApiVersionParameter", "no api-version")
            if parts.path == f"{PROVIDERS}/virtualMachines":
                return self._list(int(query.get("$skiptoken", 0)))
            return self._of_scale_set(method, parts.path, headers.get("if-match"), body)

    def _of_scale_set(self, method: str, path: str, if_match: str | None, body: Any) -> Reply:
        _, _, rest = path.partition(f"{PROVIDERS}/virtualMachineScaleSets/")
        name, _, action = rest.partition("/")
        if name not in self.sets:
            return _error(404, "ResourceNotFound", f"no {path}")
        scale_set = self.sets[name]
        match method, action:
            case "GET", "":
                return Reply(200, scale_set.body())
            case "PATCH", "":
                return self._resize(scale_set, if_match, body)
            case "POST", "delete":
                return self._delete(scale_set, body["instanceIds"])
        return _error(405, "MethodNotAllowed", f"{method} {path}")

    def _list(self, start: int) -> Reply:
        vms = list(self.vms.values())
        page: dict[str, Any] = {"value": [self._vm(vm) for vm in vms[start : start + PAGE]]}
        if start + PAGE < len(vms):
            page["nextLink"] = (
                f"{self.url}{PROVIDERS}/virtualMachines?api-version=x&$skiptoken={start + PAGE}"
            )
        return Reply(200, page)

    def _vm(self, vm: Vm) -> dict[str, Any]:
        properties: dict[str, Any] = {"provisioningState": vm.state}
        if vm.scale_set is not None:
            properties["virtualMachineScaleSet"] = {
                "id": f"{PROVIDERS}/virtualMachineScaleSets/{vm.scale_set}"
            }
        return {"name": vm.name, "location": "uksouth", "properties": properties}

    def _resize(self, scale_set: ScaleSet, if_match: str | None, body: Any) -> Reply:
        self.before_patch(scale_set)
        if if_match is not None and if_match != f'"{scale_set.revision}"':
            return _error(412, "PreconditionFailed", "the etag is old")
        wanted = body["sku"]["capacity"]
        grown = wanted - scale_set.capacity
        if grown < 0:
            existing = sum(vm.scale_set == scale_set.name for vm in self.vms.values())
            assert wanted >= existing, "Azure would choose a victim"
        refusal = self.refusals.get(scale_set.name, [])
        if grown > 0 and refusal and refusal[0][0] != 202:
            return _error(*refusal.pop(0))
        scale_set.capacity = wanted
        scale_set.revision += 1
        made = [self._begin(scale_set) for _ in range(grown)]
        operation = Operation(then=lambda: self._boot(made))
        if grown > 0 and refusal:
            _, code, message = refusal.pop(0)
            operation = Operation(
                {"code": code, "message": message}, then=lambda: self._set(made, "Failed")
            )
        identifier = f"{OPERATIONS}/operations/{next(self.serial)}"
        self.operations[identifier] = operation
        headers = {"Azure-AsyncOperation": f"{self.url}{identifier}", "Retry-After": "0.05"}
        return Reply(202, scale_set.body(), headers)

    def _begin(self, scale_set: ScaleSet) -> Vm:
        vm = Vm(f"{scale_set.name}_{next(self.serial):08x}", scale_set.name)
        self.vms[vm.name] = vm
        return vm

    def _set(self, vms: list[Vm], state: str) -> None:
        for vm in vms:
            vm.state = state

    def _boot(self, vms: list[Vm]) -> None:
        self._set(vms, "Succeeded")
        for vm in vms:
            self.on_boot(vm)

    def _delete(self, scale_set: ScaleSet, names: list[str]) -> Reply:
        unknown = [name for name in names if name not in self.vms]
        if unknown:
            return _error(400, "InvalidParameter", f"{unknown} is no instance")
        for name in names:
            assert self.vms[name].scale_set == scale_set.name
            self.vms[name].state = "Deleting"
        identifier = f"{OPERATIONS}/results/{next(self.serial)}"
        self.operations[identifier] = Operation(then=lambda: None)
        # Nobody has to look for a deletion to go on.
        threading.Timer(0.05, self._remove, [scale_set, names]).start()
        return Reply(202, None, {"Location": f"{self.url}{identifier}", "Retry-After": "0.05"})

    def _remove(self, scale_set: ScaleSet, names: list[str]) -> None:
        for name in names:
            self.on_delete(name)
        with self.lock:
            for name in names:
                if self.vms.pop(name, None):
                    scale_set.capacity -= 1
            scale_set.revision += 1

    def _operation(self, identifier: str) -> Reply:
        operation = self.operations[identifier]
        is_status = "/operations/" in identifier
        if operation.polls > 0:
            operation.polls -= 1
            headers = {"Retry-After": "0.05"}
            return Reply(200, {"status": "InProgress"}, headers) if is_status else Reply(202)
        operation.then()
        if not is_status:
            return Reply(200)
        if operation.error:
            return Reply(200, {"status": "Failed", "error": operation.error})
        return Reply(200, {"status": "Succeeded"})


def _error(status: int, code: str, message: str) -> Reply:
    return Reply(status, {"error": {"code": code, "message": message}})


@contextmanager
def serving() -> Iterator[Arm]:
    arm = Arm()
    arm.vms[HEAD] = Vm(HEAD, None, "Succeeded")

    class Handler(BaseHTTPRequestHandler):
        def _serve(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            body = json.loads(self.rfile.read(length)) if length else None
            headers = {name.lower(): value for name, value in self.headers.items()}
            reply = arm.answer(self.command, self.path, headers, body)
            data = b"" if reply.body is None else json.dumps(reply.body).encode()
            self.send_response(reply.status)
            for name, value in reply.headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_POST = do_PATCH = _serve  # noqa: N815

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    arm.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield arm
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
