"""One node of a local cluster: the process that becomes `ray start --block`."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterable, Mapping
from importlib.util import find_spec
from io import TextIOWrapper
from pathlib import Path
from typing import Any

from sunspot.node import gcs
from sunspot.node.local.folder import (
    CLUSTER_VARIABLE,
    HEAD,
    HEAD_TEMP_DIR,
    NODE_VARIABLE,
    ClusterFolder,
    ClusterRecord,
    NodeRecord,
)
from sunspot.node.processes import Process

# When Ray starts a worker, it asks the GCS for the head's node every 2 s; we ask more often, and
# start it once the head is there (ray/_private/utils.py, get_all_node_info_until_retrieved, 2.60).
HEAD_POLL_INTERVAL_S = 0.05
HEAD_TIMEOUT_S = 120.0

LOOPBACK = "127.0.0.1"
# The same in the form of IPv6, for the address of the GCS. Given "127.0.0.1", "localhost" or
# "::1", Ray takes the host's outer address, on which nothing of the cluster listens
# (ray/_private/services.py, resolve_ip_for_localhost, 2.60). Another name of the host, "LOCALHOST",
# may lead to ::1 first, where another user could listen for the token.
GCS_HOST = "[::ffff:127.0.0.1]"
# 0 lets Ray take "127.0.0.1" as it is, in the processes that the node starts: the dashboard and the
# drivers of jobs. Its name is of the systems where that is the default (ray_constants.py, 2.60).
LOOPBACK_STAYS = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"

# Where tasks and actors find the state API, as Ray Train's own do. Without it they look for the GCS
# in the command lines of this machine's processes, find both forms of its address, and take them
# for two clusters (ray/_private/services.py, canonicalize_bootstrap_address_or_die, 2.60).
STATE_API_VARIABLE = "RAY_API_SERVER_ADDRESS"


def run(folder: ClusterFolder, node: NodeRecord) -> None:
    """Turns the calling process into the node; never returns.

    The process leads its own session (no Ctrl-C in a terminal reaches it), records itself before
    it does anything else, and prints into the node's log.
    """
    os.setsid()
    folder.record_process(node.name, Process.current())
    _print_into(folder.log(node.name))
    cluster = folder.cluster()
    take_environment(cluster, node)
    if not node.is_head:
        cluster = _wait_for_head(folder)
        _share_logs(folder, node)
    from ray.scripts import scripts

    from sunspot.node.local import ray_node

    ray_node.keep_whole(folder, node.name)
    try:
        scripts.cli(arguments(cluster, node), prog_name="ray", standalone_mode=False)
    except Exception as error:  # the end below would lose it
        print(f"{type(error).__name__}: {error}", flush=True)
    finally:
        os._exit(1)  # never fall back into the launcher that forked us


def arguments(cluster: ClusterRecord, node: NodeRecord) -> list[str]:
    """The command line after `ray` that starts this node with what its record says."""
    own = [
        f"--node-name={node.name}",
        f"--dashboard-agent-listen-port={node.agent_port}",
        f"--temp-dir={node.temp_dir}",
    ]
    if not node.is_head:
        own.append(f"--address={cluster.address}")
    return ["start", *node.shape.flags, *own]


TEMP_FILES = "tmp"
"""The folder for temporary files of the cluster's processes, within its own, which goes with it."""

DEFERRED = Path(__file__).with_name("deferred")
"""The folder of modules that import the package of their name only when it is used."""

# The caller's settings that would make these nodes belong to another node, cluster or token. With
# LOOPBACK_STAYS, which an autoscaler has from its own node, `ray start` would refuse to join.
FOREIGN_VARIABLES = {
    NODE_VARIABLE,
    LOOPBACK_STAYS,
    "RAY_ADDRESS",
    STATE_API_VARIABLE,
    "RAY_AUTH_TOKEN",
    "RAY_JOB_ID",
}


def launcher_environment(folder: ClusterFolder, nodes: Iterable[NodeRecord]) -> dict[str, str]:
    """The environment of a launcher of these nodes.

    Ray reads its RAY_... settings once, when its library loads, which happens in the launcher: the
    settings of all these nodes must be set before that.
    """
    own = {name: value for name, value in os.environ.items() if name not in FOREIGN_VARIABLES}
    bin_directory = str(Path(sys.executable).parent)
    own |= {
        # So that a job's `python` is the one with Ray in it, whether its venv is active or not.
        "PATH": os.pathsep.join([bin_directory, own.get("PATH", os.defpath)]),
        **_deferring(own),
        CLUSTER_VARIABLE: str(folder.path),
        "TMPDIR": str(folder.temp_dir / TEMP_FILES),
    }
    for node in nodes:
        own |= node.shape.environment
    return own


def _deferring(environment: Mapping[str, str]) -> dict[str, str]:
    """What keeps slow packages that Ray does not use out of its processes, if there are some.

    Only packages that this environment has: otherwise Ray's processes get nothing of it.
    """
    folders = environment.get("PYTHONPATH", "").split(os.pathsep)
    if str(DEFERRED) in folders:  # an autoscaler starts nodes with the environment of its own
        return {}
    if not any(find_spec(file.stem) for file in DEFERRED.glob("*.py")):
        return {}
    return {"PYTHONPATH": os.pathsep.join([str(DEFERRED), *filter(None, folders)])}


def node_environment(node: NodeRecord) -> dict[str, str]:
    """The variables of one node: those of its group, and those by which it is found."""
    return {
        **node.shape.environment,
        NODE_VARIABLE: node.name,
        "RAY_CLOUD_INSTANCE_ID": node.name,
    }


def take_environment(cluster: ClusterRecord, node: NodeRecord) -> None:
    """Replaces other nodes' variables: the launcher's environment is that of several nodes."""
    for shape in cluster.shapes.values():
        for name in shape.environment:
            os.environ.pop(name, None)
    os.environ.update(node_environment(node))
    os.environ[STATE_API_VARIABLE] = f"http://{LOOPBACK}:{cluster.dashboard_port}"


def stay_on_this_host(params: Any, head: bool) -> None:
    """Ray's start hook: listen only on the loopback address, and have no `ray://` server.

    Ray's servers listen on every address of the host, or only on the loopback address if that is
    the node's own: the GCS, raylets, workers, agents, and the metrics endpoints, which ask for no
    token (ray/dashboard/agent.py, reporter_agent.py, autoscaler/v2/monitor.py, 2.60).
    `--node-ip-address=127.0.0.1` does not do it: `ray start` replaces it before it calls the hook.

    There is no flag to leave the `ray://` server out either (a port of 0 is refused). Drivers on
    the same host do not need it, and it costs a port and about a second of CPU at start.
    """
    stay_and_serve_clients(params, head)
    params.ray_client_server_port = None


def stay_and_serve_clients(params: Any, head: bool) -> None:
    """Ray's start hook as `stay_on_this_host`, of a head that has a `ray://` server."""
    from sunspot.node.raylet import hide_gcs_state  # late: it imports Ray

    params.node_ip_address = LOOPBACK
    hide_gcs_state(params, head)
    os.environ.pop("RAY_START_HOOK", None)
    os.environ[LOOPBACK_STAYS] = "0"


def _wait_for_head(folder: ClusterFolder) -> ClusterRecord:
    """The cluster's record, once its head is a member of its GCS.

    Raises:
        TimeoutError: the head died, or did not join in time.
    """
    deadline = time.monotonic() + HEAD_TIMEOUT_S
    client: Any = None
    while time.monotonic() < deadline:
        cluster = folder.cluster()
        if cluster.address and not client:
            client = gcs.connect(cluster.address)
        if client and HEAD in gcs.alive_nodes(client):
            return cluster
        if folder.process(HEAD) and not folder.is_running(HEAD):
            raise TimeoutError("the head died before this node could join it")
        time.sleep(HEAD_POLL_INTERVAL_S)
    raise TimeoutError(f"the head did not join its GCS within {HEAD_TIMEOUT_S:.0f} s")


def _share_logs(folder: ClusterFolder, node: NodeRecord) -> None:
    """Makes this node write its logs into the head's folder.

    Nodes of one host have one address. Ray tells nodes apart by it when it looks for the log of a
    job's driver, and would look into the head's folder for a driver that runs here (2.60).
    """
    session = (folder.temp_dir / HEAD_TEMP_DIR / "session_latest").resolve()
    own = Path(node.temp_dir) / session.name
    own.mkdir(parents=True, mode=0o700)
    (own / "logs").symlink_to(session / "logs")


def _print_into(log: Any) -> None:
    with Path(os.devnull).open() as nothing:
        os.dup2(nothing.fileno(), 0)
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    os.close(descriptor)
    # So that the log of a node that is killed has all that it said.
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(line_buffering=True)
