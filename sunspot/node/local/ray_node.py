"""`ray start --block` of a local node: which ends of Ray's processes end the node.

Where a helper ends unexpectedly, `ray start --block` ends the whole node, the head's with the
cluster (scripts/scripts.py, 2.60). On a virtual machine systemd would start it again.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import ray._private.node
from ray._private import ray_constants

from sunspot.node.local.folder import ClusterFolder
from sunspot.node.processes import way
from sunspot.node.raylet import standing_by_raylet

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
    """Makes the node that is about to start here keep its helpers, and end with its raylet."""

    class Node(standing_by_raylet(ray._private.node.Node)):
        """Ray's node; `ray start --block` asks it every second which of its processes ended."""

        def __init__(self, *args: Any, **kwargs: Any) -> None:
            self._ends: dict[str, list[float]] = defaultdict(list)
            super().__init__(*args, **kwargs)

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
