"""A local cluster without processes, whose records and GCS state are kept; and its way back."""

from __future__ import annotations

import shutil
import time
from dataclasses import replace

from sunspot.node import idle
from sunspot.node.free_ports import PortClaims, free_port, port_is_free
from sunspot.node.local import sizes
from sunspot.node.local.folder import (
    HEAD,
    ClusterFolder,
    NodeRecord,
    ports_locked,
    reserved_ports,
)
from sunspot.ray.handle import ClusterHandle
from sunspot.signals import uninterrupted
from sunspot.stack import Stack
from sunspot.targets.local import capacity, plan, starting
from sunspot.targets.local.host_ports import Chooser, HostPorts
from sunspot.targets.protocol import Progress
from sunspot.targets.suspending import stop_jobs


def suspend(
    folder: ClusterFolder, handle: ClusterHandle, progress: Progress, grace_s: float
) -> None:
    """Stops the jobs of a cluster, then ends every process. The caller holds its lock.

    The record comes before the processes: whatever stops this half-way, the cluster is suspended,
    and `start` ends what is left of it.
    """
    with uninterrupted():
        stop_jobs(handle, progress)
        progress(f"stopping {len(folder.processes())} processes")
        folder.update_cluster(suspended_at=time.time())
        _end(folder, grace_s)


def start(
    folder: ClusterFolder, stack: Stack, progress: Progress, timeout_s: float, grace_s: float
) -> HostPorts:
    """Starts a suspended cluster's head on its kept state, and new workers.

    Workers get new names: Ray's autoscaler takes a name of before for the node that ended. The
    caller holds the lock.

    Returns:
        The ports; they are those of before, where these are free.
    """
    capacity.check_space(folder)
    with PortClaims() as claims:
        try:
            with uninterrupted():
                _end(folder, grace_s)  # what a killed command left
            folder.notices.drop(idle.ABOUT)
            sizes.wake(folder)
            starting.make_temp_dir(folder, keep=True)
            with ports_locked(folder.path.parent):
                ports = _ports(folder, claims)
                nodes = _write_plan(folder, stack, ports)
            starting.start(folder, nodes, progress, timeout_s)
            folder.update_cluster(suspended_at=None)
        except BaseException as error:
            with uninterrupted():
                _end(folder, grace_s)
            error.add_note(f"{stack.name} is suspended, as before")
            raise
    return ports


def _end(folder: ClusterFolder, grace_s: float) -> None:
    """Ends every process, and makes each node one that is not wanted any more."""
    starting.end(folder, grace_s)
    for node in folder.nodes():
        folder.forget_process(node.name)
        if not node.is_head:
            folder.write_node(replace(node, goal="down"))
            shutil.rmtree(node.temp_dir, ignore_errors=True)


def _ports(folder: ClusterFolder, claims: PortClaims) -> HostPorts:
    cluster = folder.cluster()
    others = {
        port: owner
        for port, owner in reserved_ports(folder.path.parent).items()
        if owner != cluster.name
    }
    chooser = Chooser(cluster=cluster.name, recorded=others, claims=claims)
    before = HostPorts(
        gcs=cluster.gcs_port, dashboard=cluster.dashboard_port, client=cluster.client_port
    )
    return chooser.again(before)


def _write_plan(folder: ClusterFolder, stack: Stack, ports: HostPorts) -> list[NodeRecord]:
    """Writes the records of the nodes that start, before any of them exists."""
    shapes = plan.shapes(stack, folder, ports)
    folder.update_cluster(
        gcs_port=ports.gcs,
        dashboard_port=ports.dashboard,
        client_port=ports.client,
        shapes=shapes,
        address=None,
        ready_at=None,
    )
    head = next(node for node in folder.nodes() if node.is_head)
    agent = head.agent_port
    if not port_is_free(agent):
        agent = free_port(reserved_ports(folder.path.parent))
    head = replace(head, shape=shapes[HEAD], agent_port=agent, goal="up")
    folder.write_node(head)
    workers = [
        folder.add_node(shapes[group.name])
        for group in stack.cluster.scaling_groups
        for _ in range(plan.size(folder, group.name).minimum)
    ]
    return [head, *workers]
