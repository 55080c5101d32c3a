"""Rehearsing an eviction on Azure: the platform itself is asked to evict a spot VM."""

from __future__ import annotations

from sunspot.errors import SunspotError, UsageError
from sunspot.targets.azure.credentials import Endpoints, Login
from sunspot.targets.protocol import NodeStatus, Progress

COMPUTE_VERSION = "2024-11-01"
# A person waits for this one request.
PATIENCE_S = 30.0


def evict(group_id: str, node: NodeStatus, progress: Progress, endpoints: Endpoints) -> str:
    """Asks for the eviction of a worker, which follows within 30 minutes; what comes next.

    Sources: Virtual Machines - Simulate Eviction (204); Set-AzVM, -SimulateEviction (30 minutes).

    Args:
        group_id: the ARM id of the cluster's resource group.
        node: the worker.
        progress: called with each step.
        endpoints: the addresses of Azure.

    Raises:
        UsageError: the worker is not on spot.
        SunspotError: there is no login, or Azure refused.
    """
    if node.market != "spot":
        raise UsageError(f"{node.name!r} is {node.market}; Azure evicts only spot VMs")
    from sunspot.node.azure.arm import Arm, ArmError

    progress(f"asking Azure to evict {node.name}")
    _, _, subscription, *_ = group_id.split("/")
    login = Login(endpoints, subscription=subscription)
    path = f"{group_id}/providers/Microsoft.Compute/virtualMachines/{node.name}/simulateEviction"
    try:
        arm = Arm(login, endpoints.management, patience_s=PATIENCE_S)
        arm.send("POST", path, COMPUTE_VERSION, None)
    except ArmError as error:
        raise SunspotError(f"Azure does not evict {node.name!r}: {error}") from error
    return f"Azure has taken the request: it evicts {node.name} within 30 minutes"
