"""Starts the nodes of a local cluster: `python -m sunspot.node.local.launcher FOLDER NODE...`

It imports Ray once and forks a process for each node, so that a cluster of nine nodes costs one
import instead of nine. It prints events, one JSON object a line, and exits when every node is a
member of the cluster, or when one could not start. The nodes keep running.
"""

from __future__ import annotations

import http.client
import json
import os
import socket
import sys
import time
from pathlib import Path
from typing import Any

from sunspot.node import gcs
from sunspot.node.local import ray_start
from sunspot.node.local.folder import HEAD, ClusterFolder, NodeRecord

POLL_INTERVAL_S = 0.05
HTTP_TIMEOUT_S = 10.0
DASHBOARD_TIMEOUT_S = 60.0


def main(arguments: list[str]) -> int:
    """Starts the named nodes; exit code 0, or 1 after an event that says what went wrong."""
    folder, names = ClusterFolder(Path(arguments[0])), arguments[1:]
    try:
        return _launch(folder, [node for node in folder.nodes() if node.name in names])
    except Exception as error:  # the caller gets it as an event, not as a traceback
        _tell(event="died", name="launcher", log=f"{type(error).__name__}: {error}")
        return 1


def _launch(folder: ClusterFolder, nodes: list[NodeRecord]) -> int:
    import ray.scripts.scripts  # noqa: F401 - loaded here so that every fork has it

    children = {_fork(folder, node): node for node in nodes}
    if HEAD in (node.name for node in nodes):
        _wait_for_gcs(folder, children)
    return _wait_until_up(folder, children)


def _fork(folder: ClusterFolder, node: NodeRecord) -> int:
    pid = os.fork()
    if pid == 0:
        ray_start.run(folder, node)
    return pid


def _wait_for_gcs(folder: ClusterFolder, children: dict[int, NodeRecord]) -> None:
    """Waits until the head's GCS accepts connections, and records its address."""
    cluster = folder.cluster()
    while not _accepts(ray_start.LOOPBACK, cluster.gcs_port):
        _exit_if_one_died(folder, children)
        time.sleep(POLL_INTERVAL_S)
    cluster = folder.update_cluster(address=f"{ray_start.GCS_HOST}:{cluster.gcs_port}")
    _tell(event="gcs", address=cluster.address)
    _announce_dashboard(cluster.address or "", cluster.dashboard_port)


def _announce_dashboard(address: str, port: int) -> None:
    """Tells the starting head the address of its dashboard in advance.

    `ray start` starts the dashboard, waits until the address is in the GCS, and only then starts
    the raylet (ray/_private/services.py, start_api_server, 2.60). We chose the port, so we can
    say it at once: the raylet starts beside the dashboard, about two seconds earlier.
    """
    from ray._private import ray_constants

    gcs.connect(address).internal_kv_put(
        ray_constants.DASHBOARD_ADDRESS.encode(),
        f"{ray_start.LOOPBACK}:{port}".encode(),
        True,
        ray_constants.KV_NAMESPACE_DASHBOARD,
    )


def _wait_until_up(folder: ClusterFolder, children: dict[int, NodeRecord]) -> int:
    client = gcs.connect(folder.cluster().address or "")
    waiting = {node.name for node in children.values()}
    while waiting:
        _exit_if_one_died(folder, children)
        for name in sorted(waiting & gcs.alive_nodes(client).keys()):
            waiting.remove(name)
            _tell(event="node", name=name)
        time.sleep(POLL_INTERVAL_S)
    if HEAD in (node.name for node in children.values()):
        _wait_for_dashboard(folder, children)
        folder.update_cluster(ready_at=time.time())
    _tell(event="ready")
    return 0


def _wait_for_dashboard(folder: ClusterFolder, children: dict[int, NodeRecord]) -> None:
    """Waits until the job API accepts the token.

    `ray start` does not notice a dashboard that could not start, since we announced the address.
    """
    deadline = time.monotonic() + DASHBOARD_TIMEOUT_S
    port = folder.cluster().dashboard_port
    headers = {"Authorization": f"Bearer {folder.token.read_text().strip()}"}
    while time.monotonic() < deadline:
        connection = http.client.HTTPConnection(ray_start.LOOPBACK, port, timeout=HTTP_TIMEOUT_S)
        try:
            connection.request("GET", "/api/jobs/", headers=headers)
            if connection.getresponse().status == http.HTTPStatus.OK:
                return
        except (OSError, http.client.HTTPException):
            pass
        finally:
            connection.close()
        _exit_if_one_died(folder, children)
        time.sleep(POLL_INTERVAL_S)
    _tell(event="died", name=f"{HEAD}'s dashboard", log=folder.ray_log_tail("dashboard.log"))
    sys.exit(1)


def _accepts(host: str, port: int) -> bool:
    try:
        with socket.create_connection((host, port), timeout=1):
            return True
    except OSError:
        return False


def _exit_if_one_died(folder: ClusterFolder, children: dict[int, NodeRecord]) -> None:
    """Exits if a child ended: all children are nodes, and one that ends now could not start."""
    pid, _ = os.waitpid(-1, os.WNOHANG)
    if pid in children:
        name = children[pid].name
        _tell(event="died", name=name, log=folder.log_tail(name))
        sys.exit(1)


def _tell(**event: Any) -> None:
    try:
        print(json.dumps(event), flush=True)
    except BrokenPipeError:  # the caller is gone; the nodes are still wanted
        sys.stdout = Path(os.devnull).open("w")  # noqa: SIM115


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
