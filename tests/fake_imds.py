"""A stand-in for IMDS and Key Vault: `python tests/fake_imds.py --name VM [--host H] [--port N]`

The standard library alone, in one file, so that it can be copied to wherever it is wanted. It
answers as Microsoft documents it:

    GET  /metadata/instance, /metadata/instance/compute
    GET  /metadata/identity/oauth2/token?resource=R
    GET  /metadata/scheduledevents, POST the same with StartRequests
    GET  /secrets/NAME                 with the bearer token of https://vault.azure.net

and it is steered at the same address (or in the same process, by the methods of `FakeAzure`):

    POST   /control/events         {"type": "Preempt", "notice_s": 30, "resources": ["VM"], ...}
    DELETE /control/events/ID      the event is over, or was called off
    POST   /control/answers        [{"status": 429}, {"body": "<html>"}, {"delay_s": 3}, ...]
                                   what the next questions for scheduled events get instead
    GET    /control/log            the requests so far and the acknowledged events, with times
"""

from __future__ import annotations

import argparse
import contextlib
import json
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

VAULT = "https://vault.azure.net"
TOKEN_LIFE_S = 86_400
CONTROL = "control"


@dataclass
class FakeAzure:
    """One VM's surroundings, and what it asked for. `url` is filled in when it is served.

    `secrets` are Key Vault's. `answers` are given to the next questions for scheduled events, one
    each; an answer may have a `status`, a `body` (text) and a `delay_s`. `requests` are (time,
    method, path with its query, status); `acknowledged` maps an event's id to the time.
    """

    name: str = "spot_0"
    location: str = "uksouth"
    zone: str = "1"
    vm_size: str = "Standard_D2s_v5"
    scale_set: str = "spot"
    subscription_id: str = "00000000-0000-0000-0000-000000000000"
    resource_group: str = "sunspot"
    priority: str = "Spot"
    token_life_s: float = TOKEN_LIFE_S
    secrets: dict[str, str] = field(default_factory=dict)
    answers: list[dict[str, Any]] = field(default_factory=list)
    url: str = ""
    requests: list[tuple[float, str, str, int]] = field(default_factory=list)
    acknowledged: dict[str, float] = field(default_factory=dict)
    events: dict[str, dict[str, Any]] = field(default_factory=dict)
    incarnation: int = 1
    tokens_given: int = 0
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

        `resources` defaults to this VM alone. None for `notice_s` leaves NotBefore empty, as it is
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
        with self.lock:
            self.incarnation += 1
            self.events.pop(event_id, None)

    def polls(self) -> int:
        """How many questions for scheduled events were asked."""
        asked = list(self.requests)
        return sum("scheduledevents" in path and method == "GET" for _, method, path, _ in asked)

    def answer(self, method: str, target: str, headers: Any, body: str) -> tuple[int, Any]:
        """The status and the body, text or what becomes JSON, of one request."""
        url = urlsplit(target)
        query = {name: values[0] for name, values in parse_qs(url.query).items()}
        parts = url.path.strip("/").split("/")
        if parts[0] == CONTROL:
            return self._control(method, parts[1:], body)
        if parts[0] == "secrets":
            return self._secret(parts[1], headers)
        if headers.get("Metadata") != "true" or headers.get("X-Forwarded-For"):
            return 400, {"error": "Bad request. Required metadata header not specified"}
        if "api-version" not in query:
            return 400, {"error": "Bad request. api-version was not specified in the request"}
        match parts:
            case ["metadata", "instance"]:
                return 200, {"compute": self._compute(), "network": {"interface": []}}
            case ["metadata", "instance", "compute"]:
                return 200, self._compute()
            case ["metadata", "identity", "oauth2", "token"]:
                return self._token(query.get("resource", ""))
            case ["metadata", "scheduledevents"]:
                return self._start(body) if method == "POST" else self._events()
        return 404, {"error": "Not found"}

    def _compute(self) -> dict[str, Any]:
        group = f"/subscriptions/{self.subscription_id}/resourceGroups/{self.resource_group}"
        return {
            "name": self.name,
            "location": self.location,
            "zone": self.zone,
            "vmSize": self.vm_size,
            "vmId": "11111111-2222-3333-4444-555555555555",
            "vmScaleSetName": self.scale_set,
            "subscriptionId": self.subscription_id,
            "resourceGroupName": self.resource_group,
            "resourceId": f"{group}/providers/Microsoft.Compute/virtualMachines/{self.name}",
            "priority": self.priority,
            "evictionPolicy": "Delete" if self.priority == "Spot" else "",
            "tagsList": [],
        }

    def _token(self, resource: str) -> tuple[int, Any]:
        if not resource:
            return 400, {"error": "invalid_request", "error_description": "no resource"}
        with self.lock:
            self.tokens_given += 1
        return 200, {
            "access_token": access_token(resource),
            "client_id": "00000000-1111-2222-3333-444444444444",
            "expires_in": str(int(self.token_life_s)),
            "expires_on": str(int(time.time() + self.token_life_s)),
            "resource": resource,
            "token_type": "Bearer",
        }

    def _secret(self, name: str, headers: Any) -> tuple[int, Any]:
        if headers.get("Authorization") != f"Bearer {access_token(VAULT)}":
            return 401, {"error": {"code": "Unauthorized", "message": "AKV10000"}}
        if name not in self.secrets:
            return 404, {"error": {"code": "SecretNotFound", "message": name}}
        return 200, {"value": self.secrets[name], "id": f"{self.url}/secrets/{name}"}

    def _events(self) -> tuple[int, Any]:
        with self.lock:
            special = self.answers.pop(0) if self.answers else {}
        time.sleep(special.get("delay_s", 0))
        if "body" in special or "status" in special:
            return special.get("status", 200), special.get("body", '{"error": "try again"}')
        with self.lock:
            events = list(self.events.values())
            return 200, {"DocumentIncarnation": self.incarnation, "Events": events}

    def _start(self, body: str) -> tuple[int, Any]:
        try:
            ids = [request["EventId"] for request in json.loads(body)["StartRequests"]]
        except (ValueError, KeyError, TypeError):
            return 400, {"error": "Bad request"}
        with self.lock:
            if any(event_id not in self.events for event_id in ids):
                return 400, {"error": "no such event"}
            for event_id in ids:
                self.acknowledged.setdefault(event_id, time.time())
                self.events[event_id] |= {"EventStatus": "Started", "NotBefore": ""}
                self.incarnation += 1
        return 200, ""

    def _control(self, method: str, parts: list[str], body: str) -> tuple[int, Any]:
        match [method, *parts]:
            case ["POST", "events"]:
                return 200, {"id": self.announce(**json.loads(body))}
            case ["DELETE", "events", event_id]:
                self.withdraw(event_id)
                return 200, {}
            case ["POST", "answers"]:
                self.answers += json.loads(body)
                return 200, {}
            case ["GET", "log"]:
                return 200, {"requests": self.requests, "acknowledged": self.acknowledged}
        return 404, {"error": "no such control"}


def access_token(resource: str) -> str:
    """The token that the identity gets for a resource."""
    return f"access.for.{resource}"


@contextlib.contextmanager
def serving(azure: FakeAzure, host: str = "127.0.0.1", port: int = 0) -> Iterator[FakeAzure]:
    """The server, for the length of the block; port 0 takes a free one."""
    server = ThreadingHTTPServer((host, port), _handler(azure))
    azure.url = f"http://{host}:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield azure
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _handler(azure: FakeAzure) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def _do(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0)).decode()
            status, answer = azure.answer(self.command, self.path, self.headers, body)
            if f"/{CONTROL}/" not in self.path:
                azure.requests.append((time.time(), self.command, self.path, status))
            data = (answer if isinstance(answer, str) else json.dumps(answer)).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_POST = do_DELETE = _do  # noqa: N815 - http.server's names

        def handle(self) -> None:
            with contextlib.suppress(ConnectionError):  # whoever asked was not patient
                super().handle()

        def log_message(self, format: str, *arguments: Any) -> None:  # noqa: A002
            pass

    return Handler


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0, help="default: a free one, printed")
    parser.add_argument("--name", default=FakeAzure.name, help="the VM's name")
    parser.add_argument("--location", default=FakeAzure.location)
    parser.add_argument("--zone", default=FakeAzure.zone)
    parser.add_argument("--secret", action="append", default=[], metavar="NAME=VALUE")
    given = parser.parse_args()
    azure = FakeAzure(
        name=given.name,
        location=given.location,
        zone=given.zone,
        secrets=dict(secret.split("=", 1) for secret in given.secret),
    )
    with serving(azure, given.host, given.port):
        print(azure.url, flush=True)
        threading.Event().wait()


if __name__ == "__main__":
    main()
