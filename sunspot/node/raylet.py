"""A node that waits for its raylet, helps it with a slow agent, and ends with it.

`ray start --block` takes a raylet that exits with code 0 for one that was meant to end, and goes on
without it (scripts/scripts.py, 2.60). A raylet also does so when one of its agents has ended, and
tells only the GCS the difference (src/ray/raylet/main.cc, 2.60). A head would then stay without a
raylet, and run no job.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ray._private.node
import ray._private.services
import ray._raylet
from ray import NodeID  # pyright: ignore[reportAttributeAccessIssue]
from ray._private import ray_constants
from ray.exceptions import RayError

# Compiled, and without types.
RAYLET: Any = ray._raylet

# How long a raylet may take until it is a member: it waits for its agents first.
RAYLET_TIMEOUT_S, RAYLET_POLL_S = 120.0, 0.05

# Of the 15 s that a raylet gives the dashboard's agent.
AGENT_PATIENCE_S = 8.0

# Longer than a health check of the GCS takes to fail (some 20 s) and a head's GCS to start again.
ASK_TRIES, ASK_AGAIN_S, ASK_TIMEOUT_S = 60, 2.0, 10.0

# Where a head's GCS keeps its state.
GCS_SETTINGS = ("gcs_storage", "gcs_storage_path")


def start_hook(params: Any, head: bool) -> None:
    """Ray's start hook: the node that is about to start waits for its raylet, and ends with it."""
    os.environ.pop("RAY_START_HOOK", None)
    hide_gcs_state(params, head)
    ray._private.node.Node = standing_by_raylet(ray._private.node.Node)


def hide_gcs_state(params: Any, head: bool) -> None:
    """Moves where the GCS keeps its state from this process's variables into its configuration.

    Variables reach the jobs too. The GCS of a Ray that a program starts for itself, as by
    `ray.init(address="local")`, would open the cluster's own state, which RocksDB has locked, and
    the program fail after two minutes.
    """
    taken = {name: os.environ.pop(f"RAY_{name}", None) for name in GCS_SETTINGS}
    given = {name: value for name, value in taken.items() if value is not None}
    if head and given:  # a worker takes no such configuration
        params._system_config = {**(params._system_config or {}), **given}


def standing_by_raylet(base: Any) -> Any:
    """Ray's class of nodes, or one that was made of it, with all that this module has of it."""
    return waiting_for_raylet(ending_with_raylet(telling_agent_port(base)))


def telling_agent_port(base: Any) -> Any:
    """Ray's class of nodes, or one that was made of it, whose raylet has time for a slow agent.

    A raylet waits until the dashboard's agent has written its port down, and ends after 15 s, which
    the agent's imports may take on a busy machine (ray-project/ray#65983, 2.60; no setting changes
    it). Where the port is known beforehand it is written down by then. A raylet also waits for the
    ports of its agents that `ray start` was not given: on a local node that is all but this one.
    """

    class Node(base):
        def start_raylet(self, *args: Any, **kwargs: Any) -> None:
            super().start_raylet(*args, **kwargs)
            # 0: the agent takes a free port, and only the agent can tell which.
            if self.dashboard_agent_listen_port:
                threading.Thread(target=_tell_agent_port, args=(self,), daemon=True).start()

    return Node


def _tell_agent_port(node: Any) -> None:
    """Writes the agent's port down where the agent itself has not yet done so.

    Not by Ray's own `persist_port`: what it writes to, the agent's call removes and renames at the
    same time, and the one that comes too late fails (file_persistence.cc, 2.60).
    """
    # Not at once: a node that is up has an agent, which jobs need, wherever that takes no longer.
    time.sleep(AGENT_PATIENCE_S)
    folder = Path(node.get_session_dir_path())
    name = RAYLET.get_port_filename(node.node_id, RAYLET.DASHBOARD_AGENT_LISTEN_PORT_NAME)
    whole = folder / f"{name}.sunspot"
    whole.write_text(str(node.dashboard_agent_listen_port))
    with contextlib.suppress(FileExistsError):  # an agent knows better
        os.link(whole, folder / name)
    whole.unlink()


def ending_with_raylet(base: Any) -> Any:
    """Ray's class of nodes, or one that was made of it, whose nodes end with their raylet."""

    class Node(base):
        def start_raylet(self, *args: Any, **kwargs: Any) -> None:
            super().start_raylet(*args, **kwargs)
            threading.Thread(target=_end_with_raylet, args=(self,), daemon=True).start()

    return Node


def waiting_for_raylet(base: Any) -> Any:
    """Ray's class of nodes, or one that was made of it, with more patience at the start.

    A node of a busy machine may take longer than the 30 s that Ray waits for its raylet (node.py,
    raylet_start_wait_time_s, 2.60; no setting changes it).
    """

    class Node(base):
        def start_ray_processes(self) -> None:
            super().start_ray_processes()
            _wait_for_raylet(self, super().dead_processes)

    return Node


def _wait_for_raylet(node: Any, dead: Callable[[], list[tuple[str, Any]]]) -> None:
    """Returns when the node is a member, or will not be: Ray itself then says what is wrong."""
    deadline = time.monotonic() + RAYLET_TIMEOUT_S
    while time.monotonic() < deadline:
        try:
            ray._private.services.get_node(node.gcs_address, node._node_id)
        except RuntimeError:
            if ray_constants.PROCESS_TYPE_RAYLET in dict(dead()):
                return
            time.sleep(RAYLET_POLL_S)
        else:
            return


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

    A GCS that is away is asked again. One that restarted, or was away when the raylet left, takes
    the node for alive until its health checks fail, or does not know it.
    """
    for _ in range(ASK_TRIES):
        info = _info(client, NodeID.from_hex(node_id))
        if info is not None and info.state == info.DESCRIPTOR.enum_values_by_name["DEAD"].number:
            death = info.death_info
            reasons = death.DESCRIPTOR.enum_values_by_name
            if death.reason != reasons["UNEXPECTED_TERMINATION"].number:
                return ""
            return death.reason_message.partition("\n")[0] or "the GCS does not say why"
        time.sleep(ASK_AGAIN_S)
    return f"the GCS does not know of its end after {ASK_TRIES * ASK_AGAIN_S:.0f} s"


def _info(client: Any, node_id: NodeID) -> Any:
    """What the GCS knows of the node; None where it does not know it, or does not answer."""
    try:
        return client.get_all_node_info(timeout=ASK_TIMEOUT_S).get(node_id)
    except (RayError, OSError) as error:
        print(f"the GCS cannot be asked why the raylet ended: {error}", flush=True)
        return None
