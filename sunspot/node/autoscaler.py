"""What Ray's own autoscaler (v2) calls when it wants machines or has no more use for them.

The head's autoscaler config names this class as `provider.module` of `type: external`. Ray wraps
it (ray/autoscaler/v2/instance_manager/node_provider.py, NodeProviderAdapter, 2.60) and calls the
methods below from several threads.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ray.autoscaler.node_provider import NodeProvider
from ray.autoscaler.tags import (
    NODE_KIND_HEAD,
    NODE_KIND_WORKER,
    STATUS_UP_TO_DATE,
    TAG_RAY_NODE_KIND,
    TAG_RAY_NODE_STATUS,
    TAG_RAY_USER_NODE_TYPE,
)

from sunspot.node.machines import LocalMachines, Machine


class MachinesProvider(NodeProvider):
    """Ray's node provider over a `Machines`.

    The head is listed, since Ray looks for it, and never terminated: Ray asks for that when the
    head itself is stopped.
    """

    def __init__(self, provider_config: dict[str, Any], cluster_name: str) -> None:
        super().__init__(provider_config, cluster_name)
        self._machines = LocalMachines(Path(provider_config["folder"]))

    def non_terminated_nodes(self, tag_filters: dict[str, str]) -> list[str]:
        wanted = tag_filters.items()
        return [machine.id for machine in self._machines.list() if wanted <= _tags(machine).items()]

    def node_tags(self, node_id: str) -> dict[str, str]:
        return next((_tags(m) for m in self._machines.list() if m.id == node_id), {})

    def is_running(self, node_id: str) -> bool:
        return any(machine.running for machine in self._machines.list() if machine.id == node_id)

    def is_terminated(self, node_id: str) -> bool:
        return all(machine.id != node_id for machine in self._machines.list())

    def create_node_with_resources_and_labels(
        self,
        node_config: dict[str, Any],  # noqa: ARG002 - the shape lies in the cluster's record
        tags: dict[str, str],
        count: int,
        resources: dict[str, float],  # noqa: ARG002
        labels: dict[str, str],  # noqa: ARG002
    ) -> dict[str, Any] | None:
        self._machines.create(tags[TAG_RAY_USER_NODE_TYPE], count)

    def terminate_node(self, node_id: str) -> None:
        if not any(machine.is_head for machine in self._machines.list() if machine.id == node_id):
            self._machines.terminate(node_id)


def _tags(machine: Machine) -> dict[str, str]:
    return {
        TAG_RAY_NODE_KIND: NODE_KIND_HEAD if machine.is_head else NODE_KIND_WORKER,
        TAG_RAY_USER_NODE_TYPE: machine.node_type,
        TAG_RAY_NODE_STATUS: STATUS_UP_TO_DATE,
    }
