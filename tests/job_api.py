"""Ray's job API on the loopback, as far as we use it: requests, tokens and web sockets are real.

A small server that answers as Ray's documented API does (`/api/jobs/`, `/api/packages/`,
`/api/v0/`). It can also go away, fail and break off, as a head does that restarts.
"""

import base64
import hashlib
import json
import socket
import struct
import threading
import time
from collections.abc import Callable
from contextlib import contextmanager, suppress
from enum import Enum
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple
from urllib.parse import parse_qs, parse_qsl, urlsplit

import pytest

from sunspot.errors import UsageError
from sunspot.ray.handle import ClusterHandle

TOKEN = "0123abcd"
DEADLINE_S = 10.0

# Ray's log stream notices a job's end later than who polls its state (LOG_TAIL_SLEEP_S, 2.60).
TAIL_DELAY_S = 0.5

# What ends a web socket in order: code 1000.
CLOSE_FRAME = b"\x88\x02\x03\xe8"

# What Ray (2.60) answers for the log of a job that prints what is not UTF-8.
UNDECODABLE = """Traceback (most recent call last):
  File "job_head.py", line 591, in get_job_logs
RuntimeError: Request failed with status code 500: Traceback (most recent call last):
  File "<frozen codecs>", line 322, in decode
UnicodeDecodeError: {}
.
"""


class Fault(Enum):
    """What may become of a request instead of an answer."""

    DROP = "the connection ends"
    HANG = "nothing comes"


def frame(text: str) -> bytes:
    """A message of a web socket, as a server sends it."""
    data = text.encode()
    return struct.pack("!BBH", 0x81, 126, len(data)) + data


class Seen(NamedTuple):
    """One request that the server got."""

    method: str
    path: str
    authorization: str | None
    body: bytes


class Api:
    """What the server knows and was asked; tests set it and look at it.

    `states` holds, for each job, the states it goes through as it is asked for; the last one
    stays. `submitted` are those of jobs that are handed over, `logs` the bytes that jobs printed.
    `program`, if given, runs each job that is handed over: it gets the entrypoint, and what prints
    a line; a job whose program raises has failed.

    `submit_error` is answered to a job that is handed over although it starts, as Ray does where
    the head's disk is full (JobManager.submit_job, 2.60: it fails to close the job's log).

    `answers` overrides: (method, path) -> (HTTP status, text); `faults` does so for the next
    requests only, one entry for each, None for an answer as usual.

    `tail` is what the log's web socket sends, or None for a server that has no web sockets; with
    `tail_ends` it is closed soon after a client was told of the job's end. `cut_tails` holds what
    the first web sockets send, in bytes, before their connections break.
    """

    def __init__(self) -> None:
        self.token = TOKEN
        self.jobs: dict[str, dict[str, Any]] = {}
        self.states: dict[str, list[str]] = {}
        self.submitted = ["SUCCEEDED"]
        self.program: Callable[[str, Callable[[str], None]], None] | None = None
        self.submit_error: str | None = None
        self.logs: dict[str, bytes] = {}
        self.packages: dict[str, bytes] = {}
        self.nodes: list[dict[str, Any]] = []
        self.timeline: list[dict[str, Any]] = []
        self.state: dict[str, list[dict[str, Any]]] = {}
        self.summary: dict[str, Any] = {"summary": [], "nodeLogicalResources": {}}
        self.answers: dict[tuple[str, str], tuple[int, str]] = {}
        self.faults: dict[tuple[str, str], list[tuple[int, str] | Fault | None]] = {}
        self.tail: list[str] | None = None
        self.tail_ends = False
        self.tail_opened = threading.Event()
        self.cut_tails: list[bytes] = []
        self.end_told = threading.Event()
        self.seen: list[Seen] = []
        self.connections: set[socket.socket] = set()

    def add(self, job_id: str, /, *states: str, log: str | bytes = "", **fields: Any) -> None:
        self.jobs[job_id] = self.fields(job_id, **fields)
        self.states[job_id] = list(states)
        self.logs[job_id] = log.encode() if isinstance(log, str) else log

    @staticmethod
    def fields(job_id: str, /, **fields: Any) -> dict[str, Any]:
        """What the API says of a job."""
        return {
            "type": "SUBMISSION",
            "job_id": None,
            "submission_id": job_id,
            "entrypoint": "python x.py",
            "status": "PENDING",
            "message": None,
            "error_type": None,
            "start_time": None,
            "end_time": None,
            "metadata": {},
            "runtime_env": {},
            "driver_exit_code": None,
            "driver_node_id": "ab",
            **fields,
        }

    def job(self, job_id: str) -> dict[str, Any]:
        states = self.states[job_id]
        status = states.pop(0) if len(states) > 1 else states[0]
        return self.jobs[job_id] | {"status": status}

    def calls(self) -> list[str]:
        return [f"{seen.method} {seen.path}" for seen in self.seen]

    def body(self, method: str, path: str) -> Any:
        (body,) = (s.body for s in self.seen if (s.method, s.path) == (method, path))
        return json.loads(body)


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    # An answer is sent in parts, and each next one would wait 40 ms for the client.
    disable_nagle_algorithm = True
    api: Api

    def do_GET(self) -> None:
        self._handle()

    def do_POST(self) -> None:
        self._handle()

    def do_PUT(self) -> None:
        self._handle()

    def setup(self) -> None:
        super().setup()
        self.api.connections.add(self.connection)

    def finish(self) -> None:
        self.api.connections.discard(self.connection)
        with suppress(OSError):
            super().finish()

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        pass

    def _handle(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        path = urlsplit(self.path).path
        authorization = self.headers.get("Authorization")
        self.api.seen.append(Seen(self.command, path, authorization, body))
        faults = self.api.faults.get((self.command, path))
        if fault := faults.pop(0) if faults else None:
            self._fail(fault)
        elif (self.command, path) in self.api.answers:
            self._text(*self.api.answers[self.command, path])
        elif not authorization:
            self._text(401, "Unauthorized: Missing authentication token")
        elif authorization != f"Bearer {self.api.token}":
            self._text(403, "Forbidden: Invalid authentication token")
        else:
            self._route(path.strip("/").split("/"), body)

    def _fail(self, fault: tuple[int, str] | Fault) -> None:
        if fault is Fault.DROP:
            self._break()
        elif fault is Fault.HANG:
            self.rfile.read(1)  # until the client has had enough
            self.close_connection = True
        else:
            self._text(*fault)

    def _break(self) -> None:
        self.connection.shutdown(socket.SHUT_RDWR)
        self.close_connection = True

    def _route(self, parts: list[str], body: bytes) -> None:
        api = self.api
        match self.command, parts:
            case "GET", ["api", "jobs"]:
                self._json([api.job(job_id) for job_id in api.jobs])
            case "POST", ["api", "jobs"]:
                self._submit(json.loads(body))
            case _, ["api", "jobs", job_id, *_] if job_id not in api.jobs:
                self._text(404, f"Job {job_id} does not exist")
            case "GET", ["api", "jobs", job_id]:
                self._json(job := api.job(job_id))
                if job["status"] in {"SUCCEEDED", "FAILED", "STOPPED"}:
                    api.end_told.set()
            case "GET", ["api", "jobs", job_id, "logs"]:
                self._log(api.logs[job_id])
            case "GET", ["api", "jobs", _, "logs", "tail"] if api.tail is not None:
                self._tail(b"".join(map(frame, api.tail)))
            case "POST", ["api", "jobs", job_id, "stop"]:
                self._json({"stopped": True})
            case _:
                self._route_others(parts, body)

    def _route_others(self, parts: list[str], body: bytes) -> None:
        api = self.api
        match self.command, parts:
            case "GET", ["api", "packages", _, name]:
                self._text(*((200, "") if name in api.packages else (404, "does not exist")))
            case "PUT", ["api", "packages", _, name]:
                api.packages[name] = body
                self._text(200, "")
            case "GET", ["api", "v0", "nodes" | "tasks" | "actors" | "placement_groups" as kind]:
                entries = api.nodes if kind == "nodes" else api.state.get(kind, [])
                self._state(entries, dict(parse_qs(urlsplit(self.path).query)))
            case "GET", ["api", "v0", "logs", "file"]:
                self._log_file(dict(parse_qsl(urlsplit(self.path).query)))
            case "GET", ["api", "v0", "tasks", "timeline"]:
                wanted = dict(parse_qsl(urlsplit(self.path).query)).get("job_id")
                self._json([e for e in api.timeline if wanted in (None, e["args"]["job_id"])])
            case "GET", ["nodes"]:
                self._json({"result": True, "data": api.summary})
            case _:
                self._text(404, "404: Not Found")

    def _state(self, entries: list[dict[str, Any]], query: dict[str, list[str]]) -> None:
        wanted = zip(query.get("filter_keys", ()), query.get("filter_values", ()), strict=True)
        filters = list(wanted)
        found = [one for one in entries if all(one[key] == value for key, value in filters)]
        limit = int(query["limit"][0])
        self._json({"result": True, "data": {"result": {"result": found[:limit]}}})

    def _submit(self, body: dict[str, Any]) -> None:
        job_id = body["submission_id"]
        if job_id in self.api.jobs:
            self._text(500, f"Traceback (...)\nRuntimeError: Job {job_id} already exists.\n")
            return
        if self.api.program is not None:
            self._begin(job_id, body["entrypoint"], self.api.program)
        else:
            self.api.add(job_id, *self.api.submitted, log="done\n", driver_exit_code=0)
        if self.api.submit_error:
            self._text(500, f"Traceback (...)\n{self.api.submit_error}\n")
        else:
            self._json({"job_id": job_id, "submission_id": job_id})

    def _begin(self, job_id: str, entrypoint: str, program: Callable[..., None]) -> None:
        api = self.api
        api.add(job_id, "RUNNING", entrypoint=entrypoint)

        def say(line: str) -> None:
            api.logs[job_id] += f"{line}\n".encode()

        def run() -> None:
            try:
                program(entrypoint, say)
                api.states[job_id] = ["SUCCEEDED"]
            except Exception as error:  # a job's own failure
                say(str(error))
                api.states[job_id] = ["FAILED"]

        threading.Thread(target=run, daemon=True).start()

    def _log(self, log: bytes) -> None:
        try:
            self._json({"logs": log.decode()})
        except UnicodeDecodeError as error:
            self._text(500, UNDECODABLE.format(error))

    def _log_file(self, query: dict[str, str]) -> None:
        """A log's bytes: all of them only if -1 lines are asked for (DEFAULT_LOG_LIMIT, 2.60)."""
        if query["node_id"] != self.api.jobs[query["submission_id"]]["driver_node_id"]:
            self._text(500, "no such node")
        elif query.get("lines") != "-1":
            self._text(500, "only the last 1000 lines were asked for")
        else:
            self._answer(200, self.api.logs[query["submission_id"]], "text/plain")

    def _tail(self, frames: bytes) -> None:
        key = self.headers["Sec-WebSocket-Key"] + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
        accept = base64.b64encode(hashlib.sha1(key.encode()).digest()).decode()  # noqa: S324
        self.send_response(101)
        for name, value in {
            "Upgrade": "websocket",
            "Connection": "Upgrade",
            "Sec-WebSocket-Accept": accept,
        }.items():
            self.send_header(name, value)
        self.end_headers()
        if self.api.cut_tails:
            self.wfile.write(self.api.cut_tails.pop(0))
            self.wfile.flush()
            self._break()
            return
        self.wfile.write(frames)
        self.wfile.flush()
        self.api.tail_opened.set()
        if self.api.tail_ends and self.api.end_told.wait(DEADLINE_S):
            time.sleep(TAIL_DELAY_S)
            self.wfile.write(CLOSE_FRAME)
        self.rfile.read(1)  # it stays open until the client has had enough
        self.close_connection = True

    def _json(self, value: Any) -> None:
        self._answer(200, json.dumps(value).encode(), "application/json; charset=utf-8")

    def _text(self, status: int, text: str) -> None:
        self._answer(status, text.encode(), "text/plain; charset=utf-8")

    def _answer(self, status: int, body: bytes, kind: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


class Told(list[str]):
    """Collects what is told beside a job's output."""

    def __call__(self, text: str) -> None:
        self.append(text)


@contextmanager
def serving():
    """A job API on a free port; yields what it knows and its port."""
    api = Api()
    with served(api) as port:
        yield api, port


@contextmanager
def served(api: Api, port: int = 0, handler: type[Handler] = Handler):
    """Serves what an API knows, at the same port again if it is given; yields the port.

    At the end whoever is connected is cut off.
    """
    bound = type("BoundHandler", (handler,), {"api": api})
    with _Server(("127.0.0.1", port), bound) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server.server_port
        finally:
            server.shutdown()
            thread.join()
            for connection in list(api.connections):
                with suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)


class _Server(ThreadingHTTPServer):
    def handle_error(self, request: Any, client_address: Any) -> None:
        """Says nothing: clients may go away at any time."""


def handle_at(port, folder):
    token = folder / "token"
    token.write_text(f"{TOKEN}\n")
    return ClusterHandle(
        name="dev",
        target="local",
        head_address="127.0.0.1:1",
        driver_address=None,
        job_address=f"http://127.0.0.1:{port}",
        token_path=token,
    )


def refusal(action, *arguments, **keywords):
    with pytest.raises(UsageError) as caught:
        action(*arguments, **keywords)
    return str(caught.value)
