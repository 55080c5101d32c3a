"""The one description of how a node starts Ray: the flags of `ray start`, and its environment.

Each target describes its nodes as `RayNode`s and takes their flags and variables from here. What
all nodes have in common is stated below once; where targets differ, a field says how and why.
What only the node itself can know (its name, for instance) may be left out: the script that starts
the node adds that flag.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from sunspot.node.collector import BOOT_LABEL, GROUP_LABEL, MARKET_LABEL
from sunspot.ray import ports
from sunspot.ray.resources import NodeResources

NodeMarket = Literal["spot", "on-demand"]
"""How one node is bought; a group's `spec.Market` may combine both."""

LOOPBACK = "127.0.0.1"

# A machine that has not joined by then is terminated by Ray, and another one is created. Ray's own
# is an hour, all of it paid for. On Azure, node/joins.py does so earlier, and knows when to stop.
JOIN_TIMEOUT_S = 25 * 60
# ray/autoscaler/v2/instance_manager/config.py, InstanceReconcileConfig, 2.60.
ALLOCATE_TIMEOUT = "RAY_AUTOSCALER_RECONCILE_ALLOCATE_STATUS_TIMEOUT_S"

ON = "true"
# Flags of `ray start` that take no value.
SWITCHES = frozenset({"block", "disable-usage-stats", "head"})


@dataclass(frozen=True, kw_only=True)
class Autoscaler:
    """Ray's own autoscaler (v2), which runs beside the head.

    None for the limits is Ray's default (ray/autoscaler/_private/constants.py, 2.60).

    Attributes:
        config: the path of its config file on the head; None where the target passes it itself
            (KubeRay).
        interval_s: the seconds between two ticks; Ray's default is 5.
        launch_batch: the most machines of one launch; Ray's default is 5.
        concurrent_launches: the most machines that are being launched at once; Ray's default is 10.
    """

    config: str | None
    interval_s: int | None = None
    launch_batch: int | None = None
    concurrent_launches: int | None = None


@dataclass(frozen=True, kw_only=True)
class Head:
    """The settings of only the head; None where the target does not have it.

    Attributes:
        autoscaler: Ray's autoscaler.
        dashboard_host: the address that the dashboard listens on: loopback, since it is reached
            through a tunnel, except where nodes are containers.
        gcs_storage: a folder for the GCS's state, which then survives the head's process.
        prometheus_url: the URL of Prometheus, for the dashboard's pages.
        grafana_url: the URL of Grafana, for the dashboard's pages.
        grafana_iframe_url: the URL of Grafana for a browser, where that is another one.
    """

    autoscaler: Autoscaler | None = None
    dashboard_host: str = LOOPBACK
    gcs_storage: str | None = None
    prometheus_url: str | None = None
    grafana_url: str | None = None
    grafana_iframe_url: str | None = None


@dataclass(frozen=True, kw_only=True)
class RayNode:
    """One node as Ray sees it, or every node of a group.

    Attributes:
        group: The name of its group, which is its node type for the autoscaler; "head".
        market: How it is bought.
        resources: What Ray counts on it.
        object_store: The bytes of its object store.
        head: The settings of only the head; None for a worker.
        token_path: The file of the cluster's token; None where the target sets the variable itself.
        name: Its name in Ray; None if only the node knows it.
        head_address: HOST:PORT of the GCS, for a worker; None if it is known only later.
        node_ip: Its own address, where Ray must not choose among several.
        temp_dir: Its folder for sockets and logs, where nodes share a file system.
        port_numbers: None pins every port of `ports`, so that firewall rules can name them. Where
            nodes share a host, the numbers by name of those that are pinned: Ray chooses the rest.
        logical_gpus: Its GPUs are only numbers: Ray detects none, so `ray start` names their kind.
        log_monitor: False for a worker whose logs another node's log monitor reads.
        log_scan_s: How often the log monitor looks for new files; Ray's own is 0.1 below 1000 files
            (ray/_private/log_monitor.py, 2.60). At its end a driver waits 0.5 s for what they say.
        head_away_s: How long it keeps its work while the head is away; Ray's own is 60
            (ray_config_def.h, gcs_rpc_server_reconnect_timeout_s, 2.60).
        sigterm_drain_s: How long `ray start` drains the node after a SIGTERM; Ray's own is 30.
        task_events_interval_ms: How often workers report their tasks; Ray's own is 1000.
        start_hook: The function that `ray start` calls first, as "package.module.function".
        preload: A module that the node's Python workers import first.
        boot: What its machine boots from, as a short hash; None where the target does not compare.
    """

    group: str
    market: NodeMarket
    resources: NodeResources
    object_store: int
    head: Head | None = None
    token_path: str | None = None
    name: str | None = None
    head_address: str | None = None
    node_ip: str | None = None
    temp_dir: str | None = None
    port_numbers: Mapping[str, int] | None = None
    logical_gpus: bool = False
    log_monitor: bool = True
    log_scan_s: float | None = None
    head_away_s: int | None = None
    sigterm_drain_s: int | None = None
    task_events_interval_ms: int | None = None
    start_hook: str | None = None
    preload: str | None = None
    boot: str | None = None

    @property
    def role(self) -> ports.Role:
        return "worker" if self.head is None else "head"


def labels(group: str, market: NodeMarket) -> dict[str, str]:
    """The labels for a node's group and market, by which jobs select nodes."""
    return {GROUP_LABEL: group, MARKET_LABEL: market}


def flags(node: RayNode) -> list[str]:
    """The flags of `ray start`; the same flags in the same order for the same node."""
    return [
        f"--{name}" if name in SWITCHES else f"--{name}={value}"
        for name, value in parameters(node).items()
    ]


def parameters(node: RayNode) -> dict[str, str]:
    """The flags as name -> value, as `rayStartParams` of KubeRay's RayCluster has them.

    A flag without a value is "true".
    """
    has, head = node.resources, node.head
    node_labels = labels(node.group, node.market) | ({BOOT_LABEL: node.boot} if node.boot else {})
    given = {
        "block": ON,
        "disable-usage-stats": ON,
        "node-name": node.name,
        "node-ip-address": node.node_ip,
        "num-cpus": has.cpus,
        "num-gpus": has.gpus,
        "memory": has.memory,
        "object-store-memory": node.object_store,
        "resources": _logical(has) if node.logical_gpus else None,
        "labels": ",".join(f"{name}={value}" for name, value in node_labels.items()),
        "temp-dir": node.temp_dir,
        "include-log-monitor": None if node.log_monitor else "false",
        **({"address": node.head_address} if head is None else _of_head(head)),
        **ports.start_parameters(node.role, node.port_numbers),
    }
    return {name: str(value) for name, value in given.items() if value is not None}


def environment(node: RayNode) -> dict[str, str]:
    """The environment variables of the node's processes: Ray reads them when it is loaded."""
    given = {
        # Always set: otherwise `ray start` without a token of the user's would run without
        # authentication.
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN_PATH": node.token_path,
        "RAY_USAGE_STATS_ENABLED": 0,
        "RAY_NODE_TYPE_NAME": node.group,
        "RAY_NODE_MARKET_TYPE": node.market,
        "RAY_gcs_rpc_server_reconnect_timeout_s": node.head_away_s,
        "RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S": node.sigterm_drain_s,
        "RAY_task_events_report_interval_ms": node.task_events_interval_ms,
        # Otherwise every job's driver prints each second that "no available node types can
        # fulfill" tasks that merely wait on a full cluster (2.60). What a job waits for is told by
        # `submit` and `status`.
        "RAY_SCHEDULER_EVENTS": 0,
        "RAY_START_HOOK": node.start_hook,
        "RAY_preload_python_modules": node.preload,
        "LOG_NAME_UPDATE_INTERVAL_S": node.log_scan_s,
        # From how many files on it keeps to that interval.
        "RAY_LOG_MONITOR_MANY_FILES_THRESHOLD": None if node.log_scan_s is None else 0,
        **({} if node.head is None else _environment_of_head(node.head)),
        **ports.environment(node.role, node.port_numbers),
    }
    return {name: str(value) for name, value in given.items() if value is not None}


def gcs_storage(folder: str) -> dict[str, str]:
    """Ray's settings of a GCS that keeps its state in a folder.

    Its fault tolerance without a server beside it (docs.ray.io, "GCS Fault Tolerance", the embedded
    RocksDB backend, alpha in 2.60).
    """
    return {"gcs_storage": "rocksdb", "gcs_storage_path": folder}


def _logical(resources: NodeResources) -> str | None:
    named = resources.accelerator_resource
    return json.dumps(named, separators=(",", ":")) if named else None


def _of_head(head: Head) -> dict[str, str | None]:
    return {
        "head": ON,
        "include-dashboard": "true",
        "dashboard-host": head.dashboard_host,
        "autoscaling-config": None if head.autoscaler is None else head.autoscaler.config,
    }


def _environment_of_head(head: Head) -> dict[str, str | int | None]:
    """The variables for the GCS, the dashboard and the autoscaler, which all run on the head."""
    given: dict[str, str | int | None] = {
        "RAY_PROMETHEUS_HOST": head.prometheus_url,
        "RAY_GRAFANA_HOST": head.grafana_url,
        "RAY_GRAFANA_IFRAME_HOST": head.grafana_iframe_url,
        # Ray Client's proxy forks a server for each client, and some of these die in gRPC's own
        # handlers of the fork (ray-project/ray#63202; 3 of 24 with Ray 2.60, none of 60 without the
        # handlers), which are of no use where exec follows at once (grpc/grpc#14870).
        "GRPC_ENABLE_FORK_SUPPORT": 0,
    }
    if head.gcs_storage is not None:
        given |= {f"RAY_{name}": text for name, text in gcs_storage(head.gcs_storage).items()}
    if head.autoscaler is not None:
        given |= {
            "RAY_enable_autoscaler_v2": 1,
            # Tasks that no node type can ever hold fail at once instead of waiting forever.
            "RAY_enable_infeasible_task_early_exit": "true",
            ALLOCATE_TIMEOUT: JOIN_TIMEOUT_S,
            "AUTOSCALER_UPDATE_INTERVAL_S": head.autoscaler.interval_s,
            "AUTOSCALER_MAX_LAUNCH_BATCH": head.autoscaler.launch_batch,
            "AUTOSCALER_MAX_CONCURRENT_LAUNCHES": head.autoscaler.concurrent_launches,
        }
    return given
