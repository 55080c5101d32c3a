"""A VM size for every node: on Azure a node has all the resources of its size."""

from __future__ import annotations

from sunspot.errors import UsageError
from sunspot.spec import RayClusterConfig, RayNodeConfig, size_for


def fit(cluster: RayClusterConfig, problems: list[str]) -> RayClusterConfig:
    """The cluster with a size for each node.

    A node without a size gets the cheapest one that fits, with all the CPUs, memory and GPUs of
    that size.

    Args:
        cluster: the cluster as the stack file describes it.
        problems: receives a line, with the key, for each node that no size fits.
    """
    head = _sized(cluster.head_node, "head_node", problems)
    groups = tuple(
        group.model_copy(
            update={
                "worker_nodes": _sized(
                    group.worker_nodes, f"scaling_groups[{index}] > worker_nodes", problems
                )
            }
        )
        for index, group in enumerate(cluster.scaling_groups)
    )
    return cluster.model_copy(update={"head_node": head, "scaling_groups": groups})


def _sized(node: RayNodeConfig, key: str, problems: list[str]) -> RayNodeConfig:
    if node.vm_size is not None:
        return node
    try:
        return RayNodeConfig(vm_size=size_for(node).name)
    except UsageError as error:
        problems.append(f"{key}: {error}")
        return node
