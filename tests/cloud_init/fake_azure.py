"""A stand-in for what a VM asks Azure: IMDS, Key Vault and the registry's token exchange."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

ACCESS_TOKEN = "access.for.{resource}"
REFRESH_TOKEN = "refresh-me"
RAY_TOKEN = "a-token/with+signs=="


@dataclass
class Azure:
    """What the server answers, and what it was asked.

    `failures` are the status codes that a path answers first, one a request.
    """

    url: str = ""
    name: str = "hybrid-t4_1a2b3c4d"
    zone: str = "2"
    secret: str = RAY_TOKEN
    failures: dict[str, list[int]] = field(default_factory=dict)
    requests: list[tuple[str, str, dict[str, str], dict[str, str]]] = field(default_factory=list)

    def answer(
        self, method: str, path: str, headers: dict[str, str], form: dict[str, str]
    ) -> tuple[int, Any]:
        self.requests.append((method, path, headers, form))
        if self.failures.get(path):
            return self.failures[path].pop(0), {"error": "not yet"}
        if path.startswith("/metadata/") and headers.get("metadata") != "true":
            return 400, {"error": "Required metadata header not specified"}
        match path.split("/")[1:]:
            case ["metadata", "identity", "oauth2", "token"]:
                return 200, {"access_token": ACCESS_TOKEN.format(resource=form["resource"])}
            case ["metadata", "instance", "compute"]:
                return 200, {"name": self.name, "location": "uksouth", "zone": self.zone}
            case ["secrets", _]:
                expected = "Bearer " + ACCESS_TOKEN.format(resource="https://vault.azure.net")
                if headers.get("authorization") != expected:
                    return 401, {"error": "Unauthorized"}
                return 200, {"value": self.secret}
            case ["oauth2", "exchange"]:
                access = ACCESS_TOKEN.format(resource="https://management.azure.com/")
                if form.get("access_token") != access or form["grant_type"] != "access_token":
                    return 401, {"error": "Unauthorized"}
                return 200, {"refresh_token": REFRESH_TOKEN}
            case ["api", "local_raylet_healthz"]:  # not Azure's: the node's own agent
                return 200, "success"
        return 404, {"error": path}

    def paths(self) -> list[str]:
        return [path for _, path, _, _ in self.requests]


@contextmanager
def serving(address: tuple[str, int] = ("127.0.0.1", 0)) -> Iterator[Azure]:
    """Answers at an address, port 0 being any free one."""
    azure = Azure()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._answer(urlsplit(self.path).query)

        def do_POST(self) -> None:
            self._answer(self.rfile.read(int(self.headers["Content-Length"])).decode())

        def _answer(self, form: str) -> None:
            headers = {name.lower(): value for name, value in self.headers.items()}
            fields = {name: values[0] for name, values in parse_qs(form).items()}
            path = urlsplit(self.path).path
            code, body = azure.answer(self.command, path, headers, fields)
            data = json.dumps(body).encode()
            self.send_response(code)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
            pass

    server = ThreadingHTTPServer(address, Handler)
    azure.url = f"http://{address[0]}:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield azure
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
