"""Starts the nodes of a local cluster: `python -m sunspot.node.local.launcher FOLDER NODE...`

It imports Ray once and forks a process for each node, so that a cluster of nine nodes costs one
import instead of nine. It prints events, one JSON object a line, and exits when every node is a
member of the cluster, or when one could not start. The nodes keep running.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import select
import shutil
import socket
import sys
import time
from collections import Counter, deque
from pathlib import Path
from typing import Any

from sunspot.node import dashboard, gcs
from sunspot.node.events import Event, Kind
from sunspot.node.local import ray_start
from sunspot.node.local.folder import HEAD, ClusterFolder, NodeRecord
from sunspot.node.processes import stop

POLL_INTERVAL_S = 0.05
HTTP_TIMEOUT_S = 10.0
DASHBOARD_TIMEOUT_S = 60.0

# How many nodes start at once, and how often a worker is started before the launch fails.
AT_ONCE = max(4, 2 * (os.cpu_count() or 1))
TRIES = 3


def main(arguments: list[str]) -> int:
    """Starts the named nodes; exit code 0, or 1 after an event that says what went wrong."""
    folder, names = ClusterFolder(Path(arguments[0])), arguments[1:]
    try:
        return _launch(folder, [node for node in folder.nodes() if node.name in names])
    except Exception as error:  # the caller gets it as an event, not as a traceback
        _tell(event="died", name="launcher", log=f"{type(error).__name__}: {error}")
        return 1


def _launch(folder: ClusterFolder, nodes: list[NodeRecord]) -> int:
    import_ray()  # here, so that every fork has it
    starts = Starts(folder, nodes)
    if HEAD in (node.name for node in nodes):
        _wait_for_gcs(folder, starts)
    return _wait_until_up(folder, starts)


def import_ray() -> None:
    """Imports Ray's command line, without that of Serve.

    Where Serve is installed, Ray's command line imports all of it to add `ray serve`
    (ray/scripts/scripts.py, 2.60), which takes seconds before the first node can start.
    """
    kept_out = "ray.serve"
    sys.modules[kept_out] = None  # type: ignore[assignment] - Python's way to make an import fail
    try:
        import ray.scripts.scripts  # noqa: F401
    finally:
        del sys.modules[kept_out]


class Starts:
    """The starts of nodes: only so many at once, and a worker's again when it fails.

    Nodes that start at the same time slow each other down, and `ray start` gives its raylet up
    after 30 s (ray/_private/node.py, raylet_start_wait_time_s, 2.60).

    Attributes:
        waiting: the names of the nodes that are not members yet.
    """

    def __init__(self, folder: ClusterFolder, nodes: list[NodeRecord]) -> None:
        self._folder = folder
        self._nodes = {node.name: node for node in nodes}
        self._queue = deque(nodes)
        self._children: dict[int, NodeRecord] = {}
        self._tries: Counter[str] = Counter()
        self.waiting = {node.name for node in nodes}
        self._go_on()

    def joined(self, name: str) -> None:
        """Notes that a node is a member, which lets the next one start."""
        self.waiting.remove(name)
        self._record("joined", self._nodes[name], "")
        self._go_on()

    def check(self) -> None:
        """Starts a worker again whose process ended; exits where that is of no use."""
        pid, _ = os.waitpid(-1, os.WNOHANG)
        node = self._children.pop(pid, None)
        if node is None:
            return
        if node.is_head or node.name not in self.waiting or self._tries[node.name] == TRIES:
            waiting = node.name in self.waiting
            self._record("lost", node, "it could not start" if waiting else "its process ended")
            _tell(event="died", name=node.name, log=self._folder.log_tail(node.name))
            sys.exit(1)
        _tell(event="again", name=node.name)
        self._clear(node)
        self._queue.append(node)
        self._go_on()

    def _record(self, kind: Kind, node: NodeRecord, reason: str) -> None:
        event = Event(kind=kind, group=node.shape.group, node=node.name, reason=reason)
        self._folder.events.add(event)

    def _go_on(self) -> None:
        """Starts nodes while there is room; those that are members need none."""
        starting = sum(node.name in self.waiting for node in self._children.values())
        for _ in range(min(len(self._queue), AT_ONCE - starting)):
            node = self._queue.popleft()
            self._tries[node.name] += 1
            self._children[_fork(self._folder, node)] = node

    def _clear(self, node: NodeRecord) -> None:
        """Removes what a failed start left, its process' record first: the node is not lost."""
        processes = self._folder.processes(node.name)
        self._folder.forget_process(node.name)
        stop(processes, grace_s=0)
        shutil.rmtree(node.temp_dir, ignore_errors=True)


def _fork(folder: ClusterFolder, node: NodeRecord) -> int:
    pid = os.fork()
    if pid == 0:
        ray_start.run(folder, node)
    return pid


def _wait_for_gcs(folder: ClusterFolder, starts: Starts) -> None:
    """Waits until the head's GCS accepts connections, and records its address."""
    cluster = folder.cluster()
    while not _accepts(ray_start.LOOPBACK, cluster.gcs_port):
        starts.check()
        time.sleep(POLL_INTERVAL_S)
    cluster = folder.update_cluster(address=f"{ray_start.GCS_HOST}:{cluster.gcs_port}")
    _tell(event="gcs", address=cluster.address)


def _wait_until_up(folder: ClusterFolder, starts: Starts) -> int:
    with_head = HEAD in starts.waiting
    members = Members(folder, with_head=with_head)
    while starts.waiting:
        starts.check()
        for name in members.new():
            if name in starts.waiting:
                starts.joined(name)
                _tell(event="node", name=name)
    if with_head:
        _wait_for_dashboard(folder, starts)
        folder.update_cluster(ready_at=time.time())
    _tell(event="ready")
    return 0


class Members:
    """The members of the cluster, as a process of its own hears of them from the GCS.

    A process that has a client of the GCS cannot fork any more: gRPC's threads do not come along,
    and calls on both sides then never return.
    """

    def __init__(self, folder: ClusterFolder, *, with_head: bool) -> None:
        self._names, ours = os.pipe()
        self._pending = b""
        if os.fork() == 0:
            try:
                _watch_members(folder, ours, with_head=with_head)
            finally:
                os._exit(1)
        os.close(ours)

    def new(self) -> list[str]:
        """The nodes that have joined since the last call; waits a moment for some.

        Raises:
            ChildProcessError: the process ended.
        """
        if not select.select([self._names], [], [], POLL_INTERVAL_S)[0]:
            return []
        chunk = os.read(self._names, 65_536)
        if not chunk:
            raise ChildProcessError("the members of the cluster could not be watched")
        *names, self._pending = (self._pending + chunk).split(b"\n")
        return [name.decode() for name in names]


def _watch_members(folder: ClusterFolder, out: int, *, with_head: bool) -> None:
    """Writes the name of each node that joins, one per line, as long as the launcher lives."""
    from ray.exceptions import RpcError

    cluster, launcher = folder.cluster(), os.getppid()
    client = gcs.connect(cluster.address or "")
    if with_head:
        dashboard.announce(client, f"{ray_start.LOOPBACK}:{cluster.dashboard_port}")
    known: set[str] = set()
    while os.getppid() == launcher:
        with contextlib.suppress(RpcError):  # too busy to answer in time: ask again
            joined = gcs.alive_nodes(client).keys() - known
            known |= joined
            os.write(out, "".join(f"{name}\n" for name in sorted(joined)).encode())
        time.sleep(POLL_INTERVAL_S)


def _wait_for_dashboard(folder: ClusterFolder, starts: Starts) -> None:
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
        starts.check()
        time.sleep(POLL_INTERVAL_S)
    _tell(event="died", name=f"{HEAD}'s dashboard", log=folder.ray_log_tail("dashboard.log"))
    sys.exit(1)


def _accepts(host: str, port: int) -> bool:
    try:
        with socket.create_connection((host, port), timeout=1):
            return True
    except OSError:
        return False


def _tell(**event: Any) -> None:
    try:
        print(json.dumps(event), flush=True)
    except BrokenPipeError:  # the caller is gone; the nodes are still wanted
        sys.stdout = Path(os.devnull).open("w")  # noqa: SIM115


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
