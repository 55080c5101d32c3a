"""What is left of a local cluster that was taken down."""

from __future__ import annotations

import contextlib
import time

import psutil

from sunspot.node.free_ports import port_is_free
from sunspot.node.local.folder import BrokenRecordError, ClusterFolder
from sunspot.targets.host_ports import listeners
from sunspot.targets.local.host_ports import taken_by_others

# A process with threads counts as ended before the last of them has closed its sockets.
LEFT_GRACE_S, POLL_INTERVAL_S = 3.0, 0.05


def ports(folder: ClusterFolder) -> list[int]:
    """The ports of the cluster's servers; none if its record cannot be read.

    Without those that others have: a cluster that died has left its ports to whatever came then.
    """
    with contextlib.suppress(OSError, BrokenRecordError, psutil.Error):
        cluster = folder.cluster()
        agents = [node.agent_port for node in folder.nodes()]
        recorded = [*cluster.ports, *agents]
        others = taken_by_others(folder.processes())
        return [port for port in recorded if port not in others]
    return []


def left(folder: ClusterFolder, ports: list[int], sessions: set[int]) -> list[str]:
    """What is left of a cluster that was removed, one line each."""
    deadline = time.monotonic() + LEFT_GRACE_S
    while (found := _remains(folder, ports, sessions)) and time.monotonic() < deadline:
        time.sleep(POLL_INTERVAL_S)
    return found


def _remains(folder: ClusterFolder, ports: list[int], sessions: set[int]) -> list[str]:
    pids = {process.pid for process in folder.processes(sessions=sessions)}
    return [
        *(f"process {pid}" for pid in pids),
        *(f"port {port}" for port in ports if not port_is_free(port) and not _has_new(port, pids)),
        *(str(path) for path in (folder.path, folder.temp_dir) if path.exists()),
    ]


def _has_new(port: int, pids: set[int]) -> bool:
    """Whether another program has taken a port since the cluster left it."""
    return any(pid is not None and pid not in pids for pid in listeners(port))
