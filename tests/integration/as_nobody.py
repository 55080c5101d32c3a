"""What another user of this machine gets out of a cluster, without its token.

Run by root, it becomes the user nobody and tries: `python as_nobody.py < ASKED > FOUND`, both JSON.
It loads all that it needs first, so that user need not be able to read this checkout.
"""

from __future__ import annotations

import contextlib
import errno
import http.client
import importlib
import json
import os
import pkgutil
import pwd
import socket
import sys
from collections.abc import Iterator
from typing import Any

import grpc

USER = "nobody"
TIMEOUT_S = 60.0

# Every kind of page: public, of the job API, of the state API, of an agent; metrics.
PAGES = (
    "/",
    "/metrics",
    "/api/version",
    "/api/authentication_mode",
    "/api/gcs_healthz",
    "/api/healthz",
    "/api/local_raylet_healthz",
    "/api/jobs/",
    "/api/job_agent/jobs/x/logs",
    "/api/v0/nodes",
    "/api/v0/logs?node_id=x",
    "/api/serve/applications/",
    "/api/cluster_status",
    "/nodes?view=summary",
    "/logs",
    "/worker/traceback?pid=1",
)
# The runtime environment's agent: it takes protobuf by POST.
POSTS = ("/get_or_create_runtime_env", "/delete_runtime_env_if_possible", "/get_runtime_envs_info")
REFUSED = {http.HTTPStatus.UNAUTHORIZED.value, http.HTTPStatus.FORBIDDEN.value}
# The service for which Ray ships no Python module (src/ray/protobuf/object_manager.proto, 2.60).
OBJECT_MANAGER = [
    f"/ray.rpc.ObjectManagerService/{name}" for name in ("Push", "Pull", "FreeObjects")
]
HEALTH = "/grpc.health.v1.Health/Check"


def methods() -> list[str]:
    """Every gRPC method that Ray's protocol files declare."""
    found = [*OBJECT_MANAGER]
    generated = importlib.import_module("ray.core.generated")
    for module in pkgutil.iter_modules(generated.__path__):
        if module.name.endswith("_pb2"):
            file = importlib.import_module(f"ray.core.generated.{module.name}").DESCRIPTOR
            for service in file.services_by_name.values():
                found += [f"/{service.full_name}/{method.name}" for method in service.methods]
    return sorted(found)


def become(user: str) -> None:
    """This process as another user, who cannot come back."""
    account = pwd.getpwnam(user)
    os.setgroups([])
    os.setgid(account.pw_gid)
    os.setuid(account.pw_uid)


def ask_tcp(host: str, port: int, calls: list[str]) -> str:
    """What a server answers: "HTTP: ..." or "gRPC: ...", or how the connection failed."""
    try:
        pages = {page: status("GET", host, port, page) for page in PAGES}
    except OSError as error:
        return errno.errorcode.get(error.errno or 0, type(error).__name__)
    except http.client.HTTPException:
        return ask_grpc(f"{host}:{port}", calls)
    given = [page for page, code in pages.items() if code < http.HTTPStatus.BAD_REQUEST]
    if len(given) == len(PAGES):  # prometheus_client serves its one page under every path
        return "HTTP: metrics"
    posted = {page: status("POST", host, port, page) for page in POSTS}
    given += [page for page, code in posted.items() if code < http.HTTPStatus.BAD_REQUEST]
    refused = sorted({*pages.values(), *posted.values()} & REFUSED)
    return f"HTTP: {' '.join(map(str, refused))}, 200 for {' '.join(given) or 'nothing'}"


def status(method: str, host: str, port: int, page: str) -> int:
    connection = http.client.HTTPConnection(host, port, timeout=TIMEOUT_S)
    with contextlib.closing(connection):
        connection.request(method, page)
        return connection.getresponse().status


def ask_grpc(address: str, calls: list[str]) -> str:
    with grpc.insecure_channel(address) as channel:
        health = call(channel, HEALTH)
        codes = {one: call(channel, one) for one in calls}
    asked = {one: code for one, code in codes.items() if code != "UNIMPLEMENTED"}
    answers = sorted(set(asked.values())) or ["no method"]
    answers += [one for one, code in asked.items() if code != "UNAUTHENTICATED"]
    told = "" if health == "UNIMPLEMENTED" else f", health {health}"
    return f"gRPC: {' '.join(answers)}{told}"


def call(channel: grpc.Channel, method: str) -> str:
    """The status of a call without a token and with an empty request, by its name."""
    try:
        channel.unary_unary(method)(b"", timeout=TIMEOUT_S)
    except grpc.RpcError as error:
        code: Any = error
        return code.code().name
    return "OK"


def ask_unix(name: str) -> str:
    """How the connection to a UNIX socket ends; an abstract one's name begins with "@"."""
    address = f"\0{name[1:]}" if name.startswith("@") else name
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(TIMEOUT_S)
        try:
            connection.connect(address)
        except OSError as error:
            return errno.errorcode.get(error.errno or 0, type(error).__name__)
    return "connects"


def opened(root: int, names: list[str]) -> Iterator[str]:
    """Which of these files and folders below the open folder `root` can be read or written."""
    for name in names:
        for flag in (os.O_RDONLY, os.O_WRONLY):
            with contextlib.suppress(OSError):
                os.close(os.open(name, flag | os.O_NONBLOCK, dir_fd=root))
                yield name


def main() -> None:
    """Asks everything that stdin names, and prints the answers."""
    asked, calls = json.load(sys.stdin), methods()
    # From the folder itself: those above it may keep others out, but not by our doing.
    roots = {path: os.open(path, os.O_PATH) for path in asked["files"]}
    "".encode("idna")  # loaded by the first use, and no longer to be found then
    become(USER)
    found = {
        "tcp": [[host, port, ask_tcp(host, port, calls)] for host, port in asked["tcp"]],
        "unix": [[name, ask_unix(name)] for name in asked["unix"]],
        "files": {path: sorted({*opened(roots[path], asked["files"][path])}) for path in roots},
    }
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main()
