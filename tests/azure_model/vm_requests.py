"""Requests about one VM of a resource group: itself, actions on it, its console."""

from __future__ import annotations

import base64
import functools
import json
import threading
from typing import TYPE_CHECKING

from azure_model import power
from azure_model.arm_errors import COMPUTE, error
from azure_model.compute import VIRTUAL_MACHINES, Operation, Vm
from azure_model.http_service import Reply, Request

if TYPE_CHECKING:
    from azure_model.arm import Arm

# Where the consoles' logs are, which Azure keeps in a storage account of its own.
CONSOLES = "/bootdiagnostics"
# Azure/azure-powershell#16597.
BAD_USER_DATA = "UserData must be in Base64 encoding and with a maximum length of 87384 characters."


def answer(arm: Arm, request: Request) -> Reply:
    """The answer to a request whose path has a VM."""
    name, _, action = request.path.removeprefix(f"{VIRTUAL_MACHINES}/").partition("/")
    return _action(arm, name, action) if action else _vm(arm, name, request)


def _vm(arm: Arm, name: str, request: Request) -> Reply:
    """A VM itself: Virtual Machines - Get, and - Update, which takes If-Match."""
    vm = arm.vms.get(name)
    if vm is None:
        return error(404, "ResourceNotFound", f"no {name}")
    wanted = {"GET": "read", "PATCH": "write"}[request.method]
    if lacks := arm.lacks((f"{COMPUTE}/virtualMachines/{wanted}", f"{VIRTUAL_MACHINES}/{name}")):
        return lacks
    if request.method == "GET":
        return Reply(200, vm.body(with_user_data=request.query.get("$expand") == "userData"))
    arm.before_change(vm)
    if request.headers.get("If-Match") not in (None, f'"{vm.revision}"'):
        return error(412, "PreconditionFailed", "the etag is old")
    properties = json.loads(request.body)["properties"]
    try:
        text = base64.b64decode(properties.get("userData") or "", validate=True).decode()
    except ValueError:
        return error(400, "InvalidParameter", BAD_USER_DATA)
    vm.change(properties)
    if name == arm.imds.name:
        arm.imds.user_data = text
    return Reply(202, vm.body(with_user_data=False), arm.watched(Operation()))


def _action(arm: Arm, name: str, action: str) -> Reply:
    """An action on one VM."""
    vm = arm.vms.get(name)
    if vm is None:
        return error(404, "ResourceNotFound", f"no {name}")
    if action in power.ACTIONS:
        return _power(arm, vm, action)
    match action:
        case "retrieveBootDiagnosticsData":  # Retrieve Boot Diagnostics Data: 200
            right = f"{COMPUTE}/virtualMachines/retrieveBootDiagnosticsData/action"
            if lacks := arm.lacks((right, f"{VIRTUAL_MACHINES}/{name}")):
                return lacks
            return Reply(200, {"serialConsoleLogBlobUri": f"{arm.url}{CONSOLES}/{name}?sig=s"})
        case "powerOff":
            vm.state = "Stopped"
            return Reply(202, None, arm.watched(Operation()))
        case "restart":  # Virtual Machines - Restart: 202 with an operation
            then = functools.partial(arm.on_restart, vm)
            return Reply(202, None, arm.watched(Operation(then=then, polls=arm.restart_polls)))
        case "simulateEviction":  # Virtual Machines - Simulate Eviction: 204
            if vm.scale_set is None:
                return error(409, "OperationNotAllowed", f"{name} is not a spot machine")
            threading.Thread(target=arm.on_eviction, args=[vm], daemon=True).start()
            return Reply(204)
    return error(405, "MethodNotAllowed", action)


def _power(arm: Arm, vm: Vm, action: str) -> Reply:
    right = f"{COMPUTE}/virtualMachines/{power.ACTIONS[action]}"
    if lacks := arm.lacks((right, f"{VIRTUAL_MACHINES}/{vm.name}")):
        return lacks
    if action == "instanceView":
        return Reply(200, power.view(vm))
    operation = power.begin(vm, action, arm.refusals.get(vm.name, []))
    return Reply(202, None, arm.watched(operation))


def console(arm: Arm, request: Request) -> Reply:
    """A console's log: the signature is the right, and another one is refused."""
    if "Authorization" in request.headers or request.query.get("sig") != "s":
        return error(403, "AuthenticationFailed", "the signature is all that counts")
    vm = arm.vms.get(request.path.rpartition("/")[2])
    return Reply(404) if vm is None else Reply(206, vm.console)
