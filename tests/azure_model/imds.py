"""The Instance Metadata Service of one VM, and what its tokens open: vault and registry.

It answers as Microsoft documents it:

    GET   /metadata/instance, /metadata/instance/compute
    GET   /metadata/instance/compute/userData?format=text
    GET   /metadata/identity/oauth2/token?resource=R
    GET   /metadata/scheduledevents, POST the same with StartRequests
    GET   /secrets/NAME                 Key Vault
    POST  /oauth2/exchange              the container registry
"""

import base64
import contextlib
import json
import threading
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from email.utils import formatdate
from typing import Any, TypedDict

from azure_model import container_registry, http_service, key_vault
from azure_model.access_tokens import access_token
from azure_model.http_service import Reply, Request
from azure_model.resource_ids import SUBSCRIPTION, resource_id

# Where a VM finds it, on each Azure VM.
ADDRESS = "169.254.169.254"
INSTANCE = "/metadata/instance"
COMPUTE = "/metadata/instance/compute"
USER_DATA = "/metadata/instance/compute/userData"
TOKEN = "/metadata/identity/oauth2/token"
EVENTS = "/metadata/scheduledevents"
TOKEN_LIFE_S = 86_400
# Of a machine's identity where a test names none.
CLIENT_ID = "00000000-1111-2222-3333-444444444444"


@dataclass(frozen=True, kw_only=True)
class Asked:
    """A request that was answered, and when (seconds since 1970). `fields` are its query's."""

    time: float
    method: str
    path: str
    fields: Mapping[str, str]
    status: int


class Scripted(TypedDict, total=False):
    """An answer in place of the right one; with `delay_s` only, the right one comes late."""

    status: int
    body: str
    delay_s: float


@dataclass
class FakeAzure:
    """What one VM asks Azure, and what it asked. `url` is filled in when it is served.

    `client_id` is its only identity; None knows every client ID.
    `secrets` are Key Vault's. `user_data` is the VM's, of which IMDS gives the base64.
    `answers`, by path, are given to the next requests, one each.
    `acknowledged` maps an event's id to the time.
    """

    name: str = "spot_0"
    location: str = "uksouth"
    zone: str = "1"
    vm_size: str = "Standard_D2s_v5"
    scale_set: str = "spot"
    resource_group: str = "sunspot"
    priority: str = "Spot"
    client_id: str | None = None
    token_life_s: float = TOKEN_LIFE_S
    secrets: dict[str, str] = field(default_factory=dict)
    user_data: str = ""
    answers: defaultdict[str, list[Scripted]] = field(default_factory=lambda: defaultdict(list))
    url: str = ""
    requests: list[Asked] = field(default_factory=list)
    acknowledged: dict[str, float] = field(default_factory=dict)
    events: dict[str, dict[str, Any]] = field(default_factory=dict)
    incarnation: int = 1
    lock: threading.RLock = field(default_factory=threading.RLock, repr=False)

    def announce(
        self,
        type: str = "Preempt",  # noqa: A002 - Azure's word
        notice_s: float | None = 30.0,
        *,
        resources: list[str] | None = None,
        status: str = "Scheduled",
        id: str | None = None,  # noqa: A002
    ) -> str:
        """Adds an event, or replaces the one of that id; returns its id.

        `resources` defaults to this VM only. None for `notice_s` leaves NotBefore empty, as it is
        once an event has started.
        """
        with self.lock:
            self.incarnation += 1
            event_id = id or f"EVENT-{self.incarnation}"
            not_before = "" if notice_s is None else formatdate(time.time() + notice_s, usegmt=True)
            self.events[event_id] = {
                "EventId": event_id,
                "EventStatus": status,
                "EventType": type,
                "ResourceType": "VirtualMachine",
                "Resources": resources or [self.name],
                "NotBefore": not_before,
                "Description": "",
                "EventSource": "Platform",
                "DurationInSeconds": -1,
            }
            return event_id

    def withdraw(self, event_id: str) -> None:
        """Ends an event, or calls it off."""
        with self.lock:
            self.incarnation += 1
            self.events.pop(event_id, None)

    def polls(self) -> int:
        """How many times the scheduled events were asked for."""
        return sum(one.path == EVENTS and one.method == "GET" for one in list(self.requests))

    def paths(self) -> list[str]:
        """What was asked for, in order."""
        return [one.path for one in list(self.requests)]

    def answer(self, request: Request) -> Reply:
        """The answer to one request, which is noted."""
        reply = self._scripted(request.path) or self._right(request)
        self.requests.append(
            Asked(
                time=time.time(),
                method=request.method,
                path=request.path,
                fields={**request.query, **request.form},
                status=reply.status,
            )
        )
        return reply

    def _scripted(self, path: str) -> Reply | None:
        with self.lock:
            scripted = self.answers[path].pop(0) if self.answers[path] else Scripted()
        time.sleep(scripted.get("delay_s", 0))
        if "body" in scripted or "status" in scripted:
            return Reply(scripted.get("status", 200), scripted.get("body", '{"error": "not yet"}'))
        return None

    def _right(self, request: Request) -> Reply:
        match request.path.strip("/").split("/"):
            case ["secrets", name]:
                return key_vault.secret(name, self.secrets, request)
            case ["oauth2", "exchange"]:
                return container_registry.exchange(request)
            case ["metadata", *_]:
                return self._metadata(request)
        return Reply(404, {"error": "Not found"})

    def _metadata(self, request: Request) -> Reply:
        if request.headers.get("Metadata") != "true" or request.headers.get("X-Forwarded-For"):
            return Reply(400, {"error": "Bad request. Required metadata header not specified"})
        if "api-version" not in request.query:
            return Reply(400, {"error": "Bad request. api-version was not specified"})
        answers = {
            INSTANCE: lambda: Reply(200, {"compute": self._vm(), "network": {"interface": []}}),
            COMPUTE: lambda: Reply(200, self._vm()),
            USER_DATA: lambda: self._user_data(request.query),
            TOKEN: lambda: self._token(request.query),
            EVENTS: lambda: self._start(request) if request.method == "POST" else self._listed(),
        }
        answer = answers.get(request.path)
        return Reply(404, {"error": "Not found"}) if answer is None else answer()

    def _vm(self) -> dict[str, Any]:
        place = {"resourceGroupName": self.resource_group, "vmName": self.name}
        return {
            "name": self.name,
            "location": self.location,
            "zone": self.zone,
            "vmSize": self.vm_size,
            "vmId": "11111111-2222-3333-4444-555555555555",
            "vmScaleSetName": self.scale_set,
            "subscriptionId": SUBSCRIPTION,
            "resourceGroupName": self.resource_group,
            "resourceId": resource_id("VirtualMachine", place),
            "priority": self.priority,
            "evictionPolicy": "Delete" if self.priority == "Spot" else "",
            "tagsList": [],
        }

    def _user_data(self, asked: Mapping[str, str]) -> Reply:
        # A leaf of the tree comes as text only (Microsoft: instance-metadata-service).
        if asked.get("format") != "text" or asked["api-version"] < "2021-01-01":
            return Reply(400, {"error": "Bad request"})
        return Reply(200, base64.b64encode(self.user_data.encode()).decode())

    def _token(self, asked: Mapping[str, str]) -> Reply:
        resource = asked.get("resource", "")
        if not resource:
            return Reply(400, {"error": "invalid_request", "error_description": "no resource"})
        # Without an ID, Azure takes the only identity (Microsoft: how-to-use-vm-token).
        own = self.client_id or asked.get("client_id", CLIENT_ID)
        if asked.get("client_id", own) != own:
            told = "Identity not found"
            return Reply(400, {"error": "invalid_request", "error_description": told})
        return Reply(
            200,
            {
                "access_token": access_token(resource),
                "client_id": own,
                "expires_in": str(int(self.token_life_s)),
                "expires_on": str(int(time.time() + self.token_life_s)),
                "resource": resource,
                "token_type": "Bearer",
            },
        )

    def _listed(self) -> Reply:
        with self.lock:
            events = list(self.events.values())
            return Reply(200, {"DocumentIncarnation": self.incarnation, "Events": events})

    def _start(self, request: Request) -> Reply:
        try:
            ids = [start["EventId"] for start in json.loads(request.body)["StartRequests"]]
        except (ValueError, KeyError, TypeError):
            return Reply(400, {"error": "Bad request"})
        with self.lock:
            if any(event_id not in self.events for event_id in ids):
                return Reply(400, {"error": "no such event"})
            for event_id in ids:
                self.acknowledged.setdefault(event_id, time.time())
                self.events[event_id] |= {"EventStatus": "Started", "NotBefore": ""}
                self.incarnation += 1
        return Reply(200)


@contextlib.contextmanager
def serving(azure: FakeAzure, host: str = "127.0.0.1", port: int = 0) -> Iterator[FakeAzure]:
    """Serves it until the block ends; port 0 takes a free one."""
    with http_service.serving(azure.answer, host, port) as azure.url:
        yield azure
