"""What a stack becomes on this machine: shapes of nodes, ports, the autoscaler's file."""

from __future__ import annotations

import contextlib
import math

import psutil
import yaml

from sunspot import catalog
from sunspot.errors import UsageError
from sunspot.node import autoscaler_config
from sunspot.node.files import write_private
from sunspot.node.free_ports import free_port, port_is_free
from sunspot.node.local.folder import HEAD, ClusterFolder, NodeShape
from sunspot.spec import RayNodeConfig
from sunspot.stack import Stack

GIB = 2**30

# Ray's own default share of a node's memory for its object store (ray_constants, 2.60).
OBJECT_STORE_SHARE = 0.3
# Ray refuses less (ray_constants.OBJECT_STORE_MINIMUM_MEMORY_BYTES, 2.60).
OBJECT_STORE_MINIMUM = 75 * 2**20

# Ray refuses ports below, which need privileges (ray/_private/parameter.py, 2.60).
USER_PORTS = range(1024, 65_536)


def shapes(stack: Stack) -> dict[str, NodeShape]:
    """What a node of each group gets, with object stores that fit this host's memory together."""
    cluster = stack.cluster
    count = 1 + sum(group.max_workers for group in cluster.scaling_groups)
    host_share = int(psutil.virtual_memory().total * OBJECT_STORE_SHARE / count)

    def shape(group: str, market: str, node: RayNodeConfig) -> NodeShape:
        assert node.cpu is not None  # noqa: S101 - filled in by the spec
        assert node.memory_gb is not None  # noqa: S101
        memory = int(node.memory_gb * GIB)
        store = min(int(memory * OBJECT_STORE_SHARE), host_share)
        return NodeShape(
            group=group,
            market=market,
            cpus=math.ceil(node.cpu),  # Ray counts a node's CPUs in whole numbers
            gpus=node.gpu_count,
            memory=memory,
            object_store_memory=max(store, OBJECT_STORE_MINIMUM),
            accelerator=catalog.get(node.vm_size).accelerator_type if node.vm_size else None,
        )

    workers = {
        # Spot first: capacity never runs out here, so the on-demand twin is never needed.
        g.name: shape(g.name, "on-demand" if g.market == "on-demand" else "spot", g.worker_nodes)
        for g in cluster.scaling_groups
    }
    return {HEAD: shape(HEAD, "on-demand", cluster.head_node)} | workers


def write_autoscaler_config(folder: ClusterFolder, stack: Stack) -> None:
    limits = {g.name: (g.min_workers, g.max_workers) for g in stack.cluster.scaling_groups}
    types = {
        name: {
            "resources": _autoscaler_resources(shape),
            "labels": {"ray.io/node-group": name, "ray.io/market-type": shape.market},
            "node_config": {},
            "min_workers": limits.get(name, (0, 0))[0],
            "max_workers": limits.get(name, (0, 0))[1],
        }
        for name, shape in folder.cluster().shapes.items()
    }
    config = autoscaler_config.config(
        name=stack.name, provider={"folder": str(folder.path)}, node_types=types, head_type=HEAD
    )
    write_private(folder.autoscaler_config, yaml.safe_dump(config, sort_keys=False))


def _autoscaler_resources(shape: NodeShape) -> dict[str, float]:
    amounts = {"CPU": shape.cpus, "GPU": shape.gpus, "memory": shape.memory}
    if shape.accelerator:
        amounts[f"accelerator_type:{shape.accelerator}"] = 1
    return {name: int(n) if n == int(n) else n for name, n in amounts.items() if n}


def set_minimum(folder: ClusterFolder, group: str, count: int) -> int:
    """Tells the autoscaler to keep at least `count`, and returns what it was told before.

    It re-reads its file at every tick.
    """
    config = yaml.safe_load(folder.autoscaler_config.read_text())
    node_type = config["available_node_types"][group]
    before = node_type["min_workers"]
    node_type["min_workers"] = count
    write_private(folder.autoscaler_config, yaml.safe_dump(config, sort_keys=False))
    return before


def choose_port(flag: str, wanted: int | None, taken: set[int]) -> int:
    if wanted is None:
        return free_port(taken)
    if wanted not in USER_PORTS:
        raise UsageError(f"{flag} {wanted} is not a port from {USER_PORTS[0]} to {USER_PORTS[-1]}")
    if wanted in taken or not port_is_free(wanted):
        raise UsageError(
            f"port {wanted} is taken{_owner(wanted)}; give {flag} another, or leave it out and a "
            f"free one is chosen"
        )
    return wanted


def _owner(port: int) -> str:
    """Who listens on a port, as far as this user may know: " (by nginx, pid 12)" or ""."""
    with contextlib.suppress(psutil.Error):
        for connection in psutil.net_connections("tcp"):
            if connection.laddr and connection.laddr.port == port and connection.pid:
                return f" (by {psutil.Process(connection.pid).name()}, pid {connection.pid})"
    return ""
