"""Jobs: what is refused before anything is sent, and how we talk to Ray's job API.

The API is a small server of our own on the loopback that answers as Ray's documented one does
(`/api/jobs/`, `/api/packages/`, `/api/v0/`), so that requests, tokens and web sockets are real.
"""

import base64
import hashlib
import io
import json
import re
import socket
import struct
import threading
import time
import zipfile
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import pytest

from sunspot import jobs, packaging
from sunspot.errors import SunspotError, UsageError
from sunspot.jobs import GIB, Job, JobClient, NodeType, Request
from sunspot.spec import RayClusterConfig, RayNodeConfig, ScalingGroup
from sunspot.stack import Stack
from sunspot.targets import ClusterHandle

TOKEN = "0123abcd"
DEADLINE_S = 10.0

# What ends a web socket in order: code 1000.
CLOSE_FRAME = b"\x88\x02\x03\xe8"


# Ray's job API, as far as we use it


class Seen(NamedTuple):
    """One request that the server got."""

    method: str
    path: str
    authorization: str | None
    body: bytes


class Api:
    """What the server knows and was asked; tests set it and look at it.

    `states` holds, for each job, the states it goes through as it is asked for; the last one
    stays. `answers` overrides: (method, path) -> (HTTP status, text). `tail` is what the log's web
    socket sends, or None for a server that has no web sockets.
    """

    def __init__(self) -> None:
        self.token = TOKEN
        self.jobs: dict[str, dict[str, Any]] = {}
        self.states: dict[str, list[str]] = {}
        self.logs: dict[str, str] = {}
        self.packages: dict[str, bytes] = {}
        self.nodes: list[dict[str, Any]] = []
        self.summary: dict[str, Any] = {"summary": [], "nodeLogicalResources": {}}
        self.answers: dict[tuple[str, str], tuple[int, str]] = {}
        self.tail: list[str] | None = None
        self.tail_ends = False
        self.tail_opened = threading.Event()
        self.seen: list[Seen] = []

    def add(self, job_id: str, /, *states: str, log: str = "", **fields: Any) -> None:
        self.jobs[job_id] = {
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
            **fields,
        }
        self.states[job_id] = list(states)
        self.logs[job_id] = log

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
    api: Api

    def do_GET(self) -> None:
        self._handle()

    def do_POST(self) -> None:
        self._handle()

    def do_PUT(self) -> None:
        self._handle()

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        pass

    def _handle(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        path = urlsplit(self.path).path
        authorization = self.headers.get("Authorization")
        self.api.seen.append(Seen(self.command, path, authorization, body))
        if (self.command, path) in self.api.answers:
            self._text(*self.api.answers[self.command, path])
        elif not authorization:
            self._text(401, "Unauthorized: Missing authentication token")
        elif authorization != f"Bearer {self.api.token}":
            self._text(403, "Forbidden: Invalid authentication token")
        else:
            self._route(path.strip("/").split("/"), body)

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
                self._json(api.job(job_id))
            case "GET", ["api", "jobs", job_id, "logs"]:
                self._json({"logs": api.logs[job_id]})
            case "GET", ["api", "jobs", _, "logs", "tail"] if api.tail is not None:
                self._tail(api.tail)
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
            case "GET", ["api", "v0", "nodes"]:
                self._json({"result": True, "data": {"result": {"result": api.nodes}}})
            case "GET", ["nodes"]:
                self._json({"result": True, "data": api.summary})
            case _:
                self._text(404, "404: Not Found")

    def _submit(self, body: dict[str, Any]) -> None:
        job_id = body["submission_id"]
        if job_id in self.api.jobs:
            self._text(500, f"Traceback (...)\nRuntimeError: Job {job_id} already exists.\n")
            return
        self.api.add(job_id, "SUCCEEDED", log="done\n", driver_exit_code=0)
        self._json({"job_id": job_id, "submission_id": job_id})

    def _tail(self, chunks: list[str]) -> None:
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
        for chunk in chunks:
            data = chunk.encode()
            self.wfile.write(struct.pack("!BBH", 0x81, 126, len(data)) + data)
        self.wfile.flush()
        self.api.tail_opened.set()
        if self.api.tail_ends:
            self.wfile.write(CLOSE_FRAME)
        self.rfile.read(1)  # it stays open until the client has had enough
        self.close_connection = True

    def _json(self, value: Any) -> None:
        self._answer(200, json.dumps(value), "application/json; charset=utf-8")

    def _text(self, status: int, text: str) -> None:
        self._answer(status, text, "text/plain; charset=utf-8")

    def _answer(self, status: int, text: str, kind: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(text.encode())))
        self.end_headers()
        self.wfile.write(text.encode())


@contextmanager
def serving():
    """A job API on a free port; yields what it knows and its port."""
    api = Api()
    handler = type("BoundHandler", (Handler,), {"api": api})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield api, server.server_port
        finally:
            server.shutdown()
            thread.join()


def handle_at(port, folder):
    token = folder / "token"
    token.write_text(f"{TOKEN}\n")
    return ClusterHandle(
        name="dev",
        target="local",
        head_address="127.0.0.1:1",
        job_address=f"http://127.0.0.1:{port}",
        token_path=token,
    )


class Told(list[str]):
    """Collects what is told beside a job's output."""

    def __call__(self, text: str) -> None:
        self.append(text)


@pytest.fixture
def running():
    with serving() as (api, port):
        yield api, port


@pytest.fixture
def api(running):
    return running[0]


@pytest.fixture
def client(running, tmp_path):
    return JobClient(handle_at(running[1], tmp_path))


@pytest.fixture
def tell():
    return Told()


def refusal(action, *arguments, **keywords):
    with pytest.raises(UsageError) as caught:
        action(*arguments, **keywords)
    return str(caught.value)


# What can ever run


HEAD = NodeType(name="head", resources={"CPU": 2, "memory": 8 * GIB})
GPU = NodeType(name="group 'gpu'", resources={"CPU": 4, "GPU": 1, "memory": 28 * GIB})
BIG = NodeType(name="group 'big'", resources={"CPU": 16, "memory": 64 * GIB, "widget": 3})
TYPES = [HEAD, GPU, BIG]


@pytest.mark.parametrize(
    "request_",
    [
        Request(),
        Request(num_cpus=0, num_gpus=0, memory_gb=0),
        Request(num_cpus=16, memory_gb=64),
        Request(num_cpus=4, num_gpus=1, memory_gb=28),
        Request(num_gpus=0.5),
        Request(resources={"widget": 3}),
        Request(resources={"nowhere": 0}),
    ],
)
def test_what_one_node_type_can_hold_passes(request_):
    jobs.check_feasible(request_, TYPES)


def test_nothing_asked_needs_no_node_type():
    jobs.check_feasible(Request(), [HEAD])


@pytest.mark.parametrize(
    ("request_", "expected"),
    [
        # Seed 004's job: two GPUs where nodes have one. Nearest is the node with the GPU.
        (Request(num_gpus=2), ["GPU: asked 2", "(group 'gpu') has 1", "largest any has is 1"]),
        (Request(num_cpus=17), ["CPU: asked 17", "(group 'big') has 16", "largest any has is 16"]),
        (Request(memory_gb=65), ["memory: asked 65 GiB", "has 64 GiB"]),
        (Request(memory_gb=1850), ["memory: asked 1850 GiB"]),
        (Request(resources={"widget": 4}), ["widget: asked 4", "has 3", "largest any has is 3"]),
        (Request(resources={"gadget": 1}), ["gadget: asked 1", "has 0", "largest any has is 0"]),
    ],
)
def test_what_no_node_can_hold_is_refused_with_the_limit(request_, expected):
    message = refusal(jobs.check_feasible, request_, TYPES)
    assert message.startswith("no node of this cluster can ever hold this job.")
    assert all(part in message for part in expected), message
    assert message.endswith("wait for a larger node to join with --wait")


def test_each_need_fits_some_type_and_all_together_fit_none():
    request = Request(num_cpus=8, num_gpus=1, memory_gb=32)
    message = refusal(jobs.check_feasible, request, TYPES)
    # The nearest lacks one thing only, the others two or three.
    assert "GPU: asked 1, the nearest node type (group 'big') has 0" in message
    assert "the largest any has is 1" in message
    assert "CPU: asked" not in message
    assert "memory: asked" not in message


def test_nearest_is_the_type_that_lacks_the_fewest_things():
    request = Request(num_cpus=4, num_gpus=2, memory_gb=16)
    message = refusal(jobs.check_feasible, request, [HEAD, GPU])
    assert "(group 'gpu')" in message
    assert "memory" not in message


def test_node_types_are_the_head_and_every_group_at_its_size():
    stack = Stack(
        name="t",
        target="local",
        cluster=RayClusterConfig(
            head_node=RayNodeConfig(cpu=2, memory_gb=8),
            scaling_groups=(
                ScalingGroup(name="gpu", worker_nodes=RayNodeConfig(vm_size="NC4as_T4_v3")),
            ),
        ),
    )
    head, group = jobs.node_types(stack)
    assert (head.name, group.name) == ("head", "group 'gpu'")
    assert head.resources == {"CPU": 2, "GPU": 0, "memory": 8 * GIB}
    assert group.resources["GPU"] == 1
    assert group.resources["memory"] == 28 * GIB


def test_half_a_cpu_counts_as_the_whole_one_that_ray_gives_the_node():
    cluster = RayClusterConfig(head_node=RayNodeConfig(cpu=1.5, memory_gb=2))
    types = jobs.node_types(Stack(name="t", target="local", cluster=cluster))
    jobs.check_feasible(Request(num_cpus=2), types)


def test_a_group_that_is_not_up_yet_counts_with_its_accelerator_type():
    stack = Stack(
        name="t",
        target="local",
        cluster=RayClusterConfig(
            head_node=RayNodeConfig(cpu=2, memory_gb=8),
            scaling_groups=(
                ScalingGroup(name="gpu", worker_nodes=RayNodeConfig(vm_size="NC4as_T4_v3")),
            ),
        ),
    )
    # Ray gives such a node `accelerator_type:T4`: 1, and so does our autoscaler config.
    request = Request(resources={"accelerator_type:T4": 0.001})
    jobs.check_feasible(request, jobs.node_types(stack))


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        ({"num_cpus": -1}, "CPU: -1"),
        ({"num_gpus": -0.5}, "GPU: -0.5"),
        ({"memory_gb": -1}, "memory"),
        ({"resources": {"widget": -2}}, "widget: -2"),
    ],
)
def test_negative_amounts_are_refused(fields, name):
    message = refusal(Request, **fields)
    assert name in message
    assert "give 0 or more" in message


@pytest.mark.parametrize("amount", [float("nan"), float("inf")])
def test_amounts_that_are_no_numbers_are_refused(amount):
    # JSON has neither: they would fail while the job is being sent.
    assert "CPU" in refusal(Request, num_cpus=amount)


def test_amounts_are_rays_names_with_memory_in_bytes():
    request = Request(num_cpus=1, num_gpus=0, memory_gb=1.5, resources={"widget": 2})
    assert request.amounts() == {"CPU": 1, "GPU": 0, "memory": 1.5 * GIB, "widget": 2}
    assert Request().amounts() == {}


# The runtime environment


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("env.yaml", "pip: [numpy]\nenv_vars:\n  A: '1'\n"),
        ("env.json", '{"pip": ["numpy"], "env_vars": {"A": "1"}}'),
    ],
)
def test_runtime_env_is_read_from_yaml_and_json(tmp_path, name, text):
    (tmp_path / name).write_text(text)
    env = jobs.runtime_env(tmp_path / name, [], None)
    assert env["env_vars"] == {"A": "1"}
    assert "numpy" in json.dumps(env["pip"])
    assert env["working_dir"] == "."


def test_flags_win_over_the_file(tmp_path):
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir()
    there.mkdir()
    file = tmp_path / "env.yaml"
    file.write_text(f"working_dir: {there}\nenv_vars: {{A: file, B: file}}\n")
    assert jobs.runtime_env(file, [], None)["working_dir"] == str(there)
    env = jobs.runtime_env(file, ["B=flag", "C=x=y", "D="], str(here))
    assert env["env_vars"] == {"A": "file", "B": "flag", "C": "x=y", "D": ""}
    assert env["working_dir"] == str(here)


def test_without_anything_the_working_directory_goes_along():
    assert jobs.runtime_env(None, [], None) == {"working_dir": "."}
    assert jobs.runtime_env(None, ["A=1", "A=2"], "s3://b/x.zip") == {
        "env_vars": {"A": "2"},
        "working_dir": "s3://b/x.zip",
    }


@pytest.mark.parametrize("variable", ["A", "=1", ""])
def test_an_env_flag_that_is_no_pair_is_refused(variable):
    message = refusal(jobs.runtime_env, None, [variable], None)
    assert repr(variable) in message
    assert "NAME=VALUE" in message


@pytest.mark.parametrize(
    ("content", "part"),
    [
        (b"[1, 2]", "must hold a mapping"),
        (b"", "must hold a mapping"),
        (b"hello", "must hold a mapping"),
        (b"{a: [", "neither YAML nor JSON"),
        (b"pip: 5", "pip"),
        (b"env_vars: {A: 1}", "env_vars"),
        (b"{pip: [a], conda: x}", "conda"),
        (b"working_dir: ./not-there", "not-there"),
        (b"1: 2", ""),
        (b"\xff\xfe\x00\xff", "neither YAML nor JSON"),
    ],
)
def test_a_bad_runtime_env_file_is_named_with_its_fault(tmp_path, content, part):
    file = tmp_path / "env.yaml"
    file.write_bytes(content)
    message = refusal(jobs.runtime_env, file, [], None)
    assert str(file) in message
    assert part in message


def test_a_missing_runtime_env_file_is_named(tmp_path):
    message = refusal(jobs.runtime_env, tmp_path / "gone.yaml", [], None)
    assert str(tmp_path / "gone.yaml") in message
    assert "No such file" in message


def test_local_py_modules_are_refused_and_remote_ones_pass(tmp_path):
    module = tmp_path / "mine"
    module.mkdir()
    file = tmp_path / "env.yaml"
    file.write_text(f"py_modules: ['s3://bucket/a.zip', {module}]\n")
    message = refusal(jobs.runtime_env, file, [], None)
    assert str(module) in message
    assert "s3://" not in message
    assert "working directory" in message
    file.write_text("py_modules: ['s3://bucket/a.zip']\n")
    assert jobs.runtime_env(file, [], None)["py_modules"] == ["s3://bucket/a.zip"]


# Ids and exit codes


@pytest.mark.parametrize(
    ("entrypoint", "stem"),
    [
        (["python", "workloads/primes.py", "--stop", "9"], "primes"),
        (["bash", "-x", "tools/run all.sh"], "run-all"),
        (["true"], "true"),
        (["/usr/bin/env"], "env"),
        (["?"], "job"),
        ([""], "job"),
        (["python", "größe.py"], "gr-e"),
    ],
)
def test_a_new_id_tells_what_runs(entrypoint, stem):
    first, second = jobs.new_id(entrypoint), jobs.new_id(entrypoint)
    assert re.fullmatch(rf"{re.escape(stem)}-[0-9a-f]{{6}}", first), first
    assert first != second


def job(status, **fields):
    defaults = {"id": "j", "ray_id": "", "entrypoint": "x", "message": "", "exit_code": None}
    return Job(**{**defaults, "started": None, "ended": None, **fields, "status": status})


@pytest.mark.parametrize(
    ("status", "driver", "expected"),
    [
        ("SUCCEEDED", 0, 0),
        ("SUCCEEDED", None, 0),
        ("FAILED", 3, 3),
        ("FAILED", None, 1),
        ("FAILED", 0, 1),
        ("FAILED", -9, -9),
        ("STOPPED", None, 130),
        ("STOPPED", 1, 130),
    ],
)
def test_exit_code(status, driver, expected):
    assert jobs.exit_code(job(status, exit_code=driver)) == expected


@pytest.mark.parametrize(
    ("status", "ended"),
    [("PENDING", 0), ("RUNNING", 0), ("SUCCEEDED", 1), ("FAILED", 1), ("STOPPED", 1)],
)
def test_has_ended(status, ended):
    assert job(status).has_ended is bool(ended)


# Asking


def test_jobs_are_listed_newest_first_without_other_drivers(api, client):
    api.add("old", "SUCCEEDED", start_time=1_000, end_time=2_500, job_id="01000000")
    api.add("new", "FAILED", start_time=9_000, driver_exit_code=3, message="it broke")
    api.add("waiting", "PENDING")
    api.add("x", "RUNNING", type="DRIVER", submission_id=None, job_id="02000000")
    found = client.list()
    assert [job.id for job in found] == ["new", "old", "waiting"]
    new, old, waiting = found
    assert (old.started, old.ended, old.ray_id) == (1.0, 2.5, "01000000")
    assert (new.exit_code, new.message, new.ended) == (3, "it broke", None)
    assert (waiting.started, waiting.message, waiting.ray_id) == (None, "", "")


def test_an_unknown_job_is_an_error_with_those_that_exist(api, client):
    assert "there is no job 'nope'; jobs: none" in refusal(client.get, "nope")
    api.add("primes-1", "RUNNING")
    for ask in (client.get, client.logs, client.stop):
        assert "there is no job 'nope'; jobs: primes-1" in refusal(ask, "nope")


def test_logs_are_all_that_was_printed(api, client):
    api.add("j", "RUNNING", log="größe\n2\n")
    assert client.logs("j") == "größe\n2\n"


def test_live_nodes_are_those_alive_with_what_they_have(api, client):
    api.nodes = [
        {"node_name": "head", "state": "ALIVE", "resources_total": {"CPU": 2.0, "widget": 1.0}},
        {"node_name": "workers-0", "state": "DEAD", "resources_total": {"CPU": 64.0}},
    ]
    (node,) = client.live_nodes()
    assert node == NodeType(name="node head", resources={"CPU": 2.0, "widget": 1.0})


# Refusals and silence


@pytest.mark.parametrize("token", ["", "someone-elses"])
def test_a_refused_token_names_its_file_and_the_address(running, tmp_path, token):
    handle = handle_at(running[1], tmp_path)
    handle.token_path.write_text(token)
    with pytest.raises(SunspotError) as caught:
        JobClient(handle).list()
    message = str(caught.value)
    assert str(handle.token_path) in message
    assert handle.job_address in message
    assert "HTTP 40" in message
    assert "another cluster" in message


def test_of_a_traceback_the_last_line_is_shown(api, client):
    api.answers["GET", "/api/jobs/"] = (
        500,
        "Traceback (most recent call last):\n  File x\nRuntimeError: the GCS is gone\n\n",
    )
    with pytest.raises(SunspotError) as caught:
        client.list()
    assert str(caught.value) == "RuntimeError: the GCS is gone"
    api.answers["GET", "/api/jobs/"] = (503, "")
    with pytest.raises(SunspotError, match="HTTP 503"):
        client.list()


def closed_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@pytest.mark.parametrize(
    "ask",
    [
        lambda client: client.list(),
        lambda client: client.submit(["true"], request=Request(), runtime_env={}),
        lambda client: client.follow("j", io.StringIO(), Told()),
    ],
)
def test_silence_says_where_and_how_to_look(tmp_path, ask):
    handle = handle_at(closed_port(), tmp_path)
    with pytest.raises(SunspotError) as caught:
        ask(JobClient(handle))
    message = str(caught.value)
    assert not isinstance(caught.value, UsageError)
    assert f"the job API of 'dev' at {handle.job_address} does not answer" in message
    assert "sunspot status" in message
    assert "dev" in message.rpartition("sunspot status")[2]


def test_the_hint_of_silence_is_a_command_that_exists(tmp_path):
    from typer.core import TyperGroup
    from typer.main import get_command

    from sunspot.cli import app

    error = jobs.unreachable(handle_at(1, tmp_path), OSError("x"))
    hint = str(error).rpartition("sunspot ")[2].split()
    command = get_command(app)
    assert isinstance(command, TyperGroup)
    status = command.commands[hint[0]]
    status.make_context(hint[0], hint[1:])  # raises if the arguments are not the command's


def test_no_proxy_and_no_netrc_come_between(api, client, tmp_path, monkeypatch):
    dead = f"http://127.0.0.1:{closed_port()}"
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, dead)
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    netrc = tmp_path / "netrc"
    netrc.write_text("machine 127.0.0.1 login me password wrong\n")
    netrc.chmod(0o600)
    monkeypatch.setenv("NETRC", str(netrc))
    api.add("j", "SUCCEEDED", log="hello\n")
    out = io.StringIO()
    assert [job.id for job in client.list()] == ["j"]
    assert client.follow("j", out, Told()).status == "SUCCEEDED"
    assert out.getvalue() == "hello\n"
    assert {seen.authorization for seen in api.seen} == {f"Bearer {TOKEN}"}


# Submitting


def test_submit_sends_rays_body(api, client):
    job_id = client.submit(
        ["python", "x.py", "--name", "a b", "$HOME", "it's"],
        request=Request(num_cpus=2, num_gpus=0.5, memory_gb=1.5, resources={"widget": 1}),
        runtime_env={"env_vars": {"A": "1"}},
        job_id="mine",
    )
    assert job_id == "mine"
    assert api.body("POST", "/api/jobs/") == {
        "entrypoint": """python x.py --name 'a b' '$HOME' 'it'"'"'s'""",
        "submission_id": "mine",
        "runtime_env": {"env_vars": {"A": "1"}},
        "metadata": {},
        "entrypoint_num_cpus": 2,
        "entrypoint_num_gpus": 0.5,
        "entrypoint_memory": 1_610_612_736,
        "entrypoint_resources": {"widget": 1},
    }


def test_rays_own_model_takes_the_body(api, client):
    from ray.dashboard.modules.job.common import JobSubmitRequest

    client.submit(["true"], request=Request(memory_gb=0.5), runtime_env={}, job_id="a")
    taken = JobSubmitRequest(**api.body("POST", "/api/jobs/"))
    assert taken.entrypoint_memory == 2**29
    assert taken.submission_id == "a"


def test_a_job_that_asks_for_nothing_sends_nothing(api, client):
    job_id = client.submit(["python", "primes.py"], request=Request(), runtime_env={})
    body = api.body("POST", "/api/jobs/")
    assert body["submission_id"] == job_id
    assert job_id.startswith("primes-")
    needs = ["num_cpus", "num_gpus", "memory", "resources"]
    assert [body[f"entrypoint_{need}"] for need in needs] == [None] * 4


def test_an_id_that_is_taken_is_a_usage_error_with_a_way_out(api, client):
    api.add("mine", "RUNNING")
    message = refusal(client.submit, ["true"], request=Request(), runtime_env={}, job_id="mine")
    assert "there is a job 'mine' already" in message
    assert "--name" in message
    assert "sunspot logs mine" in message


def test_another_refusal_to_submit_is_shown_as_it_is(api, client):
    api.answers["POST", "/api/jobs/"] = (400, "Traceback\nValueError: bad id\n")
    with pytest.raises(SunspotError, match=r"^ValueError: bad id$"):
        client.submit(["true"], request=Request(), runtime_env={})


# The working directory


def test_upload_happens_once_for_the_same_content(api, client, tmp_path, tell):
    folder = tmp_path / "work"
    folder.mkdir()
    (folder / "x.py").write_text("print(1)\n")
    env = {"working_dir": str(folder)}
    client.send_working_dir(env, tell)
    uri = env["working_dir"]
    name = uri.removeprefix("gcs://")
    assert re.fullmatch(r"gcs://_ray_pkg_[0-9a-f]{40}\.zip", uri)
    with zipfile.ZipFile(io.BytesIO(api.packages[name])) as archive:
        assert archive.namelist() == ["x.py"]
        assert archive.read("x.py") == b"print(1)\n"
    again = {"working_dir": str(folder)}
    client.send_working_dir(again, tell)
    assert again == env
    assert api.calls() == [
        f"GET /api/packages/gcs/{name}",
        f"PUT /api/packages/gcs/{name}",
        f"GET /api/packages/gcs/{name}",
    ]
    assert re.fullmatch(rf"uploading {re.escape(str(folder))} \(1 files?, 0\.\d KiB\)", tell[0])
    assert re.fullmatch(
        rf"{re.escape(str(folder))} \(1 files?, 0\.\d KiB\) is on the cluster already", tell[1]
    )


@pytest.mark.parametrize("uri", ["s3://bucket/x.zip", "gcs://_ray_pkg_1.zip", "https://h/x.zip"])
def test_a_remote_working_directory_is_left_alone(api, client, tell, uri):
    env = {"working_dir": uri}
    client.send_working_dir(env, tell)
    assert env == {"working_dir": uri}
    assert not api.seen
    assert not tell


def test_an_empty_working_directory_is_left_out(api, client, tmp_path, tell):
    (tmp_path / "empty").mkdir()
    env = {"working_dir": str(tmp_path / "empty"), "env_vars": {"A": "1"}}
    client.send_working_dir(env, tell)
    assert env == {"env_vars": {"A": "1"}}
    assert not api.seen


def test_a_missing_working_directory_is_refused_before_anything_is_sent(api, client, tmp_path):
    message = refusal(client.send_working_dir, {"working_dir": str(tmp_path / "no")}, Told())
    assert f"{tmp_path / 'no'} does not exist" in message
    assert "--working-dir" in message
    assert not api.seen


def test_an_upload_that_is_refused_says_why(api, client, tmp_path):
    (tmp_path / "x.py").write_text("1")
    files = [packaging.File(packaging.Path("x.py"), 1)]
    with packaging.package(tmp_path, files) as package:
        path = "/api/packages/" + package.uri.replace("://", "/")
    api.answers["PUT", path] = (500, "Traceback\nRuntimeError: the GCS is full\n")
    with pytest.raises(SunspotError, match="the GCS is full"):
        client.upload(tmp_path, files, Told())


# Stopping


def test_stop_waits_until_the_job_has_ended(api, client):
    api.add("j", "RUNNING", "RUNNING", "RUNNING", "STOPPED")
    assert client.stop("j").status == "STOPPED"
    assert api.calls().count("POST /api/jobs/j/stop") == 1
    assert api.calls()[-1] == "GET /api/jobs/j"


def test_a_job_that_has_ended_is_not_stopped(api, client):
    api.add("j", "SUCCEEDED")
    assert client.stop("j").status == "SUCCEEDED"
    assert api.calls() == ["GET /api/jobs/j"]


def test_a_job_that_does_not_stop_is_an_error(api, client, monkeypatch):
    monkeypatch.setattr(jobs, "STOP_TIMEOUT_S", 0.2)
    api.add("j", "RUNNING")
    with pytest.raises(SunspotError) as caught:
        client.stop("j")
    assert "'j' was told to stop and is still RUNNING" in str(caught.value)
    assert "sunspot jobs" in str(caught.value)


# Following


@pytest.mark.parametrize("tail", [None, ["one\n", "two\n"], []])
@pytest.mark.parametrize("status", ["SUCCEEDED", "FAILED", "STOPPED"])
def test_follow_prints_a_short_jobs_log_once(api, client, tell, tail, status):
    api.tail = tail
    api.add("j", "PENDING", "RUNNING", "RUNNING", status, log="one\ntwo\nend")
    out = io.StringIO()
    assert client.follow("j", out, tell).status == status
    assert out.getvalue() == "one\ntwo\nend"
    assert not tell


def test_follow_of_a_job_that_has_ended_asks_for_no_tail(api, client, tell):
    api.tail = ["never\n"]
    api.add("j", "FAILED", log="it broke\n", driver_exit_code=7)
    out = io.StringIO()
    job = client.follow("j", out, tell)
    assert (job.status, job.exit_code) == ("FAILED", 7)
    assert out.getvalue() == "it broke\n"
    assert not any("tail" in call for call in api.calls())


def test_follow_prints_while_the_job_runs(api, client, tell):
    api.tail = ["one\n", "zwölf\n"]
    api.add("j", "RUNNING", log="one\nzwölf\nend\n")
    pieces: list[str] = []

    class Out(io.StringIO):
        def write(self, text: str) -> int:
            pieces.append(text)
            if "zwölf\n" in pieces:  # the job ends when we have seen what it printed
                api.states["j"] = ["SUCCEEDED"]
            return super().write(text)

    ending = threading.Timer(DEADLINE_S, lambda: api.states.update(j=["FAILED"]))
    ending.start()
    out = Out()
    job = client.follow("j", out, tell)
    ending.cancel()
    assert job.status == "SUCCEEDED"
    assert out.getvalue() == "one\nzwölf\nend\n"
    assert pieces[:2] == ["one\n", "zwölf\n"]


def test_a_long_log_is_not_read_again(api, client, tell, monkeypatch):
    monkeypatch.setattr(jobs, "REREAD_CHARACTERS", 5)
    api.add("j", "RUNNING", log="unused")
    api.tail = ["longer than five\n"]
    api.tail_ends = True  # as Ray's does, some seconds after the job

    def end() -> None:
        api.tail_opened.wait(DEADLINE_S)
        api.states["j"] = ["SUCCEEDED"]

    thread = threading.Thread(target=end)
    thread.start()
    out = io.StringIO()
    client.follow("j", out, tell)
    thread.join()
    assert out.getvalue() == "longer than five\n"
    assert "GET /api/jobs/j/logs" not in api.calls()


def test_follow_of_an_unknown_job_is_an_error(client, tell):
    with pytest.raises(SunspotError, match="Job nope does not exist"):
        client.follow("nope", io.StringIO(), tell)


def test_a_head_that_goes_away_while_following_is_an_error(tmp_path, tell):
    with serving() as (api, port):
        api.add("j", "RUNNING")
        client = JobClient(handle_at(port, tmp_path))
        asked = len(api.seen)
        result: list[BaseException] = []

        def follow() -> None:
            try:
                client.follow("j", io.StringIO(), tell)
            except BaseException as error:
                result.append(error)

        thread = threading.Thread(target=follow)
        thread.start()
        until(lambda: len(api.seen) > asked)
        api.answers["GET", "/api/jobs/j"] = (500, "RuntimeError: GCS down")
        thread.join(DEADLINE_S)
    (error,) = result
    assert isinstance(error, SunspotError)
    assert "GCS down" in str(error)


def until(condition):
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, "timed out"
        time.sleep(0.01)
