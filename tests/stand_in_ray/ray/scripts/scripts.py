"""`ray start --block` of one node: a member until it gets a SIGTERM, or is drained."""

import json
import os
import signal
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from socketserver import BaseRequestHandler, ThreadingTCPServer

# The stand-in's own, which type checkers take for Ray's.
from ray._raylet import folder, members, starts  # pyright: ignore[reportAttributeAccessIssue]

GIB = 2**30


class Api(BaseHTTPRequestHandler):
    def do_GET(self):
        path = self.path.partition("?")[0]
        answers = {
            "/api/jobs/": [],
            "/api/v0/nodes": {"data": {"result": {"result": members()}}},
            "/nodes": {"data": {"summary": [], "nodeLogicalResources": {}}},
        }
        token = Path(os.environ["RAY_AUTH_TOKEN_PATH"]).read_text().strip()
        allowed = self.headers.get("Authorization") == f"Bearer {token}"
        self.send_response(200 if allowed and path in answers else 401)
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        if allowed and path in answers:
            self.wfile.write(json.dumps(answers[path]).encode())

    def log_message(self, format, *args):  # noqa: A002 - the base class names them
        pass


def cli(arguments, prog_name="ray", standalone_mode=True):
    print("ray", *arguments, flush=True)
    flags = dict(word.removeprefix("--").partition("=")[::2] for word in arguments[1:])
    name, is_head = flags["node-name"], "head" in flags
    if f"FAIL_{name.partition('-')[0].upper()}" in os.environ:
        print("it cannot start", flush=True)
        sys.exit(1)
    is_too_slow = too_slow(name)
    if is_head:
        host = flags["node-ip-address"]
        serve(ThreadingTCPServer, (host, int(flags["port"])), BaseRequestHandler)
        serve(ThreadingHTTPServer, (flags["dashboard-host"], int(flags["dashboard-port"])), Api)
    if is_too_slow:
        time.sleep(1)  # in which workers meet the head's GCS
        raise RuntimeError("The current node timed out during startup. This could happen because")
    file = folder() / f"{name}.json"
    file.with_suffix(".drained").unlink(missing_ok=True)  # of an earlier start
    signal.signal(signal.SIGTERM, lambda *_: end(file))
    member = {
        "node_name": name,
        "node_ip": flags["node-ip-address"],
        "state": "ALIVE",
        "state_message": "",
        "is_head_node": is_head,
        "labels": dict(one.split("=") for one in flags["labels"].split(",")),
        "resources_total": {
            "CPU": float(flags["num-cpus"]),
            "GPU": float(flags["num-gpus"]),
            "memory": float(flags["memory"]),
        },
    }
    new = file.with_suffix(".new")
    new.write_text(json.dumps(member))
    new.replace(file)
    print("Ray runtime started.", flush=True)
    while not file.with_suffix(".drained").exists():
        time.sleep(0.05)
    file.unlink()
    # As Ray's: a node that was drained leaves the cluster, and its `ray start` goes on.
    while True:
        signal.pause()


def too_slow(name):
    """Whether this start is one of the first SLOW_GROUP ones of a node."""
    with starts(name).open("a") as file:
        file.write(".")
    group = name.partition("-")[0].upper()
    return starts(name).stat().st_size <= int(os.environ.get(f"SLOW_{group}", "0"))


def serve(kind, address, handler):
    kind.allow_reuse_address, kind.daemon_threads = True, True
    kind.request_queue_size = 100
    server = kind(address, handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()


def end(file):
    file.unlink(missing_ok=True)
    os._exit(1)
