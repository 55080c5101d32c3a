"""A stack's cluster on this machine: shapes of nodes, ports, the autoscaler's file."""

from __future__ import annotations

import secrets
from dataclasses import replace

import psutil
import yaml

from sunspot.node import autoscaler_config
from sunspot.node.files import write_private
from sunspot.node.local import sizes
from sunspot.node.local.folder import (
    HEAD,
    ClusterFolder,
    ClusterRecord,
    NodeRecord,
    NodeShape,
)
from sunspot.ray import resources, start
from sunspot.ray.resources import OBJECT_STORE_SHARE, NodeResources
from sunspot.ray.start import Autoscaler, Head, NodeMarket, RayNode
from sunspot.spec import RayNodeConfig, ScalingGroup
from sunspot.stack import Stack
from sunspot.targets.local.host_ports import HostPorts
from sunspot.targets.scaling import Size

MACHINES = "sunspot.node.local.machines.create"
START_HOOK = "sunspot.node.local.ray_start.stay_on_this_host"
CLIENTS_HOOK = "sunspot.node.local.ray_start.stay_and_serve_clients"
PRELOAD = "sunspot.node.local.preload"  # for GPUs that are only numbers

# Ray refuses less (ray_constants.OBJECT_STORE_MINIMUM_MEMORY_BYTES, 2.60).
OBJECT_STORE_MINIMUM = 75 * 2**20

# Nodes share the host, also with those of other clusters: the kernel chooses free ports.
WORKER_PORTS = {"workers": 0}
HEAD_PORTS = {**WORKER_PORTS, "autoscaler-metrics": 0, "dashboard-metrics": 0}

# A node starts within seconds, so the autoscaler ticks more often than Ray's 5 s. A tick takes some
# 15 ms of CPU, most of it to read its file, and an idle cluster ticks as often.
AUTOSCALER_INTERVAL_S = 2
# With Ray's ten times a second, looking for logs costs more the longer a cluster runs.
LOG_SCAN_S = 0.25
# Ray's 1000 loses the last tasks of a short job, whose workers end with it.
TASK_EVENTS_INTERVAL_MS = 200


def shapes(stack: Stack, folder: ClusterFolder, ports: HostPorts) -> dict[str, NodeShape]:
    """The node shape of each group, with object stores that together fit this host's memory."""
    head = replace(
        _ray_node(stack, folder, stack.cluster.head_node, HEAD, "on-demand"),
        head=Head(
            autoscaler=Autoscaler(
                config=str(folder.autoscaler_config), interval_s=AUTOSCALER_INTERVAL_S
            ),
            # So that a suspended cluster comes back as the same one.
            gcs_storage=str(folder.gcs_state),
        ),
        port_numbers={**HEAD_PORTS, **ports.numbers},
        start_hook=START_HOOK if ports.client is None else CLIENTS_HOOK,
        log_monitor=True,
        log_scan_s=LOG_SCAN_S,
    )
    workers = [
        _ray_node(stack, folder, group.worker_nodes, group.name, _market(group))
        for group in stack.cluster.scaling_groups
    ]
    return {node.group: _shape(node) for node in (head, *workers)}


def _market(group: ScalingGroup) -> NodeMarket:
    # Spot first: capacity never runs out here, so the on-demand twin is never needed.
    return "on-demand" if group.market == "on-demand" else "spot"


def _ray_node(
    stack: Stack, folder: ClusterFolder, node: RayNodeConfig, group: str, market: NodeMarket
) -> RayNode:
    """A worker of the group, without the flags that ray_start.py adds for one node."""
    has = resources.of(node)
    return RayNode(
        group=group,
        market=market,
        resources=has,
        object_store=_object_store(has, stack),
        token_path=str(folder.token),
        port_numbers=WORKER_PORTS,
        logical_gpus=True,
        # The head's log monitor reads the shared folder of logs (ray_start.py, _share_logs).
        log_monitor=False,
        # Sunspot drains a node before it stops it; a second drain would only wait.
        sigterm_drain_s=0,
        task_events_interval_ms=TASK_EVENTS_INTERVAL_MS,
        start_hook=START_HOOK,
        preload=PRELOAD if has_gpus(stack) else None,
    )


def has_gpus(stack: Stack) -> bool:
    """Whether some node of the stack has GPUs, which are only numbers here."""
    cluster = stack.cluster
    groups = (group.worker_nodes for group in cluster.scaling_groups)
    return any(node.gpu_count for node in (cluster.head_node, *groups))


def object_stores(stack: Stack) -> int:
    """The bytes of the object stores of the nodes that `up` starts."""
    cluster = stack.cluster
    nodes = [(cluster.head_node, 1)]
    nodes += [(group.worker_nodes, group.min_workers) for group in cluster.scaling_groups]
    return sum(count * _object_store(resources.of(node), stack) for node, count in nodes)


def _object_store(has: NodeResources, stack: Stack) -> int:
    count = 1 + sum(group.max_workers for group in stack.cluster.scaling_groups)
    host_share = int(psutil.virtual_memory().total * OBJECT_STORE_SHARE / count)
    return max(min(has.object_store, host_share), OBJECT_STORE_MINIMUM)


def _shape(node: RayNode) -> NodeShape:
    return NodeShape(
        group=node.group,
        market=node.market,
        cpus=node.resources.cpus,
        gpus=node.resources.gpus,
        memory=node.resources.memory,
        flags=start.flags(node),
        environment=start.environment(node),
    )


def write_records(folder: ClusterFolder, stack: Stack, ports: HostPorts) -> list[NodeRecord]:
    """Writes the records of the cluster and its nodes, before any of them exists."""
    folder.gcs_state.mkdir(mode=0o700, parents=True)
    write_private(folder.token, secrets.token_hex(32))
    made = shapes(stack, folder, ports)
    folder.write_cluster(
        ClusterRecord(
            name=stack.name,
            gcs_port=ports.gcs,
            dashboard_port=ports.dashboard,
            client_port=ports.client,
            shapes=made,
            stack=stack.model_dump(mode="json"),
        )
    )
    folder.add_node(made[HEAD])
    for group in stack.cluster.scaling_groups:
        for _ in range(group.min_workers):
            folder.add_node(made[group.name])
    write_autoscaler_config(folder, stack)
    return folder.nodes()


def write_autoscaler_config(folder: ClusterFolder, stack: Stack) -> None:
    head = autoscaler_config.node_type(
        resources=resources.of(stack.cluster.head_node).amounts(),
        labels=start.labels(HEAD, "on-demand"),
    )
    workers = {
        group.name: autoscaler_config.node_type(
            resources=resources.of(group.worker_nodes).amounts(),
            labels=start.labels(group.name, _market(group)),
            minimum=group.min_workers,
            maximum=group.max_workers,
        )
        for group in stack.cluster.scaling_groups
    }
    config = autoscaler_config.config(
        name=stack.name,
        machines=MACHINES,
        settings={"folder": str(folder.path)},
        config_file=str(folder.autoscaler_config),
        node_types={HEAD: head, **workers},
        head_type=HEAD,
    )
    write_private(folder.autoscaler_config, yaml.safe_dump(config, sort_keys=False))


def size(folder: ClusterFolder, group: str) -> Size:
    """The limits of a group in the autoscaler's file."""
    minimum, maximum = sizes.limits(folder, group)
    return Size(minimum=minimum, maximum=maximum)


def set_size(folder: ClusterFolder, group: str, wanted: Size) -> None:
    """Sets the limits of a group in the autoscaler's file.

    A number becomes the minimum; the maximum stays, unless it is lower.
    """
    sizes.set_limits(folder, group, wanted.minimum, wanted.maximum)
