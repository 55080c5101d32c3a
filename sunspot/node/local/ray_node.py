"""`ray start --block` of a local node: which ends of Ray's processes end the node.

Where a helper ends unexpectedly, `ray start --block` ends the whole node, the head's with the
cluster; on a virtual machine systemd would start it again. A raylet that exits with code 0 it
takes for one that was meant to end, and stays without it (scripts/scripts.py, 2.60).
"""

from __future__ import annotations

import os
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import ray._private.node
from ray import NodeID  # pyright: ignore[reportAttributeAccessIssue]
from ray._private import ray_constants

from sunspot.node.local.exits import way
from sunspot.node.local.folder import ClusterFolder

# One that cannot live is not started for ever: after so many ends, the node ends as Ray has it.
MOST_STARTS, WITHIN_S = 5, 600.0

# What a node can be without for a moment, as people call it, and how Ray starts it.
_HELPERS: dict[str, tuple[str, Callable[[Any], None]]] = {
    ray_constants.PROCESS_TYPE_MONITOR: ("autoscaler", lambda node: node.start_monitor()),
    ray_constants.PROCESS_TYPE_LOG_MONITOR: ("log monitor", lambda node: node.start_log_monitor()),
    ray_constants.PROCESS_TYPE_DASHBOARD: (
        "dashboard",
        lambda node: node.start_api_server(include_dashboard=True, raise_on_failure=True),
    ),
}


def keep_whole(folder: ClusterFolder, name: str) -> None:
    """Makes the node that this process is about to start keep its helpers, or end."""

    class Node(ray._private.node.Node):
        """Ray's node; `ray start --block` asks it every second which of its processes ended."""

        def __init__(self, *args: Any, **kwargs: Any) -> None:
            self._ends: dict[str, list[float]] = defaultdict(list)
            super().__init__(*args, **kwargs)

        def start_raylet(self, *args: Any, **kwargs: Any) -> None:
            super().start_raylet(*args, **kwargs)
            threading.Thread(target=_end_with_raylet, args=(self,), daemon=True).start()

        def dead_processes(self) -> list[tuple[str, Any]]:
            for kind, process in super().dead_processes():
                if kind in _HELPERS and self._is_rare(kind):
                    self._start_again(kind, process.returncode)
            return super().dead_processes()

        def _is_rare(self, kind: str) -> bool:
            now = time.monotonic()
            self._ends[kind] = [end for end in self._ends[kind] if now - end < WITHIN_S] + [now]
            return len(self._ends[kind]) <= MOST_STARTS

        def _start_again(self, kind: str, code: int) -> None:
            helper, start = _HELPERS[kind]
            ended = self.all_processes.pop(kind)
            try:
                start(self)
            except Exception as error:  # Ray then ends the node, and its log says why
                self.all_processes[kind] = ended
                print(f"the {helper} could not be started again: {error}", flush=True)
                return
            folder.add_note(name, f"the {helper} {way(code)} and was started again")

    ray._private.node.Node = Node  # type: ignore[misc] - the name that `ray start` looks up


def _end_with_raylet(node: Any) -> None:
    """Waits for the raylet's end, and ends the node where nobody asked for it."""
    (raylet,) = node.all_processes[ray_constants.PROCESS_TYPE_RAYLET]
    code = raylet.process.wait()
    # `ray start` itself sees to any other code.
    if code == 0 and (reason := _unexpected_end(node.get_gcs_client(), node.node_id)):
        print(f"raylet [exit code={code}]\n{reason}", flush=True)
        node.kill_all_processes(check_alive=False, allow_graceful=False)
        os._exit(1)


def _unexpected_end(client: Any, node_id: str) -> str:
    """Why the node left the GCS, in a line; "" where it was drained or told to stop.

    When one of its agents has ended, a raylet exits with code 0 as well: it tells only the GCS the
    difference (src/ray/raylet/main.cc, 2.60).
    """
    death = client.get_all_node_info()[NodeID.from_hex(node_id)].death_info
    unexpected = death.DESCRIPTOR.enum_values_by_name["UNEXPECTED_TERMINATION"].number
    return death.reason_message.partition("\n")[0] if death.reason == unexpected else ""
