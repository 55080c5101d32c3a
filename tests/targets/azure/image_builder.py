"""A stand-in of Azure Resource Manager as far as `sunspot bake` asks it.

What it refuses is from Microsoft's pages: nothing that exists gets another location
(InvalidResourceLocation, InvalidResourceGroupLocation), a template cannot be put twice, needs its
providers registered and its identity's role known, and a run ends with an operation of its own.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from azure_model.http_service import Reply, Request, serving

_OPERATION = "/operations/"
# ImageTemplateNameParameter of the API's description (imagebuilder.json, 2024-02-01).
_TEMPLATE_NAME = re.compile(r"[A-Za-z0-9-_.]{1,64}")


@dataclass
class ImageBuilder:
    """`resources` are the bodies by path; `requests` are "METHOD path" in order.

    Attributes:
        unregistered: providers that are registered only once they were asked for.
        unknown_role_for: how many templates are refused because the role is not known yet.
        run_fails: what Image Builder says of a run that failed; None for one that succeeds.
        failures: by a part of a path, the answers to its next requests.
    """

    unregistered: set[str] = field(default_factory=set)
    unknown_role_for: int = 0
    run_fails: str | None = None
    failures: dict[str, list[Reply]] = field(default_factory=dict)
    resources: dict[str, dict[str, Any]] = field(default_factory=dict)
    requests: list[str] = field(default_factory=list)
    url: str = ""

    def paths(self, part: str) -> list[str]:
        """The paths of the resources that have this in them."""
        return [path for path in self.resources if part in path]

    def answer(self, request: Request) -> Reply:
        path = request.path
        self.requests.append(f"{request.method} {path}")
        assert path.startswith(_OPERATION) or request.query["api-version"]
        for part, replies in self.failures.items():
            if part in path and replies:
                return replies.pop(0)
        if path.startswith(_OPERATION):
            return self._operation(path)
        if request.method == "PUT":
            return self._put(path, json.loads(request.body))
        if request.method == "DELETE":
            return self._delete(path)
        if request.method == "POST":
            return self._post(path)
        return self._get(path)

    def _delete(self, path: str) -> Reply:
        if self.resources.pop(path, None) is None:
            return Reply(204)
        return Reply(202, None, {"Location": f"{self.url}{_OPERATION}delete"})

    def _operation(self, path: str) -> Reply:
        if path.endswith("unauthorized"):
            # The service's own check of the identity; its code as deployments report it.
            error = {"code": "Unauthorized", "message": "Not authorized to access the resource: x"}
            return Reply(200, {"status": "Failed", "error": error})
        if path.endswith("run") and self.run_fails is not None:
            error = {"code": "InternalOperationError", "message": "see lastRunStatus"}
            return Reply(200, {"status": "Failed", "error": error})
        return Reply(200, {"status": "Succeeded"})

    def _put(self, path: str, body: dict[str, Any]) -> Reply:
        if body.get("location") != self.resources.get(path, body).get("location"):
            return _error(409, "InvalidResourceLocation", "it already exists in another location")
        if "/imageTemplates/" in path:
            if _TEMPLATE_NAME.fullmatch(path.rpartition("/")[2]) is None:
                return _error(400, "InvalidResourceName", "the template's name is too long")
            if path in self.resources:
                return _error(409, "Conflict", "a template cannot be changed")
            self.resources[path] = body
            if self.unregistered:
                return _error(409, "MissingSubscriptionRegistration", "not registered")
            end = "put" if self._may_write(path) else "unauthorized"
            return Reply(201, body, {"Azure-AsyncOperation": f"{self.url}{_OPERATION}{end}"})
        if "userAssignedIdentities" in path:
            body = {**body, "properties": {"principalId": "builder"}}
        self.resources[path] = body
        return Reply(201, body)

    def _may_write(self, template: str) -> bool:
        """Whether the identity has its role on the whole group, and the role is known by now.

        Microsoft's page on permissions wants `Microsoft.Compute/images` there, for a gallery too.
        """
        if self.unknown_role_for > 0:
            self.unknown_role_for -= 1
            return False
        group = template.partition("/providers/")[0]
        return bool(self.paths(f"{group}/providers/Microsoft.Authorization/roleAssignments/"))

    def _post(self, path: str) -> Reply:
        if path.endswith("/register"):
            self.unregistered.discard(path.split("/")[-2])
            return Reply(200, {})
        if path.endswith("/cancel"):
            return _error(409, "Conflict", "no run is in progress")
        return Reply(202, None, {"Azure-AsyncOperation": f"{self.url}{_OPERATION}run"})

    def _get(self, path: str) -> Reply:
        if "/imageTemplates/" in path:
            return Reply(200, {"properties": {"lastRunStatus": {"message": self.run_fails}}})
        if "/resourceGroups/" in path:
            found = self.resources.get(path)
            return Reply(200, found) if found else _error(404, "ResourceNotFound", path)
        state = "NotRegistered" if path.rpartition("/")[2] in self.unregistered else "Registered"
        return Reply(200, {"registrationState": state})


def _error(status: int, code: str, message: str) -> Reply:
    return Reply(status, {"error": {"code": code, "message": message}})


@contextlib.contextmanager
def running(service: ImageBuilder) -> Iterator[str]:
    """Answers until the block ends; yields the URL."""
    with serving(service.answer) as url:
        service.url = url
        yield url
