"""What runs in the containers, with nothing beside it but Ray."""

import subprocess
import threading
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from compose_stacks import group, host, stack
from imported_alone import run_alone

from sunspot.node import metrics
from sunspot.node.compose import exporter
from sunspot.ray import ports
from sunspot.targets.compose import node_files, plan, ray_nodes


def test_modules_find_all_that_they_import(tmp_path):
    names = (*node_files.RAY_NODE, *node_files.LOGICAL_GPUS, *node_files.EXPORTER)
    for name, text in node_files.texts(names).items():
        file = tmp_path / "sunspot" / "node" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    modules = f"sunspot.node.compose.exporter, sunspot.node.raylet, {ray_nodes.PRELOAD}"
    done = run_alone(f"import {modules}", tmp_path)
    assert done.returncode == 0, done.stderr


def test_the_exporter_serves_prices_and_evictions(monkeypatch):
    given, ready = {}, threading.Event()

    def serve(collectors, port, *, address):
        given.update(collectors=list(collectors), port=port, address=address)
        ready.set()

    monkeypatch.setenv("SUNSPOT_PRICES", '{"head": 1.5}')
    monkeypatch.setattr(metrics, "serve", serve)
    thread = threading.Thread(target=exporter.main, args=("head:6379", "8081"), daemon=True)
    thread.start()
    assert ready.wait(30)
    assert (given["port"], given["address"]) == (8081, exporter.EVERY_ADDRESS)
    nodes, _evictions = given["collectors"]
    assert nodes._prices() == {"head": 1.5}


def agent(code, text):
    """Ray's agent, as far as it tells whether its raylet is well."""

    class Agent(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(code)
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, format, *args):  # noqa: A002 - the base class's name
            pass

    return Agent


@pytest.mark.parametrize(
    ("code", "text", "healthy"), [(200, b"success", True), (503, b"no raylet", False)]
)
def test_a_node_is_healthy_while_its_raylet_is(code, text, healthy):
    server = ThreadingHTTPServer(("127.0.0.1", 0), agent(code, text))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        assert is_healthy(server.server_port) is healthy
    finally:
        server.shutdown()
        server.server_close()
    assert not is_healthy(server.server_port)


def is_healthy(port):
    """What the health check of a node's container says."""
    made = plan.make(stack(group()), host(), Path("/nowhere"))
    command, *arguments = ray_nodes.common(made)["healthcheck"]["test"]
    assert command == "CMD"
    line = [one.replace(str(ports.get("dashboard-agent").number), str(port)) for one in arguments]
    return subprocess.run(line, capture_output=True, timeout=60).returncode == 0


def test_metrics_are_served_at_the_address_that_is_given():
    server = metrics.serve([], 0, address="127.0.0.2")
    try:
        url = f"http://127.0.0.2:{server.server_port}/metrics"
        assert urllib.request.urlopen(url, timeout=30).status == 200
    finally:
        server.shutdown()
        server.server_close()
