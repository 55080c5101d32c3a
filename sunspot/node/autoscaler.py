"""The node provider that Ray's own autoscaler (v2) calls to create and terminate machines.

The head's autoscaler config names this class as `provider.module` of `type: external`. Ray wraps
it (ray/autoscaler/v2/instance_manager/node_provider.py, NodeProviderAdapter, 2.60) and calls the
methods below from several threads. The config says where machines come from: see
autoscaler_config.py.
"""

from __future__ import annotations

import importlib
import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ray.autoscaler.node_provider import NodeProvider
from ray.autoscaler.tags import (
    NODE_KIND_HEAD,
    NODE_KIND_WORKER,
    STATUS_UP_TO_DATE,
    TAG_RAY_NODE_KIND,
    TAG_RAY_NODE_STATUS,
    TAG_RAY_USER_NODE_TYPE,
)
from ray.autoscaler.v2.scheduler import ResourceDemandScheduler

from sunspot.node import infeasible
from sunspot.node.fallback import Fallback
from sunspot.node.machines import LaunchDeniedError, LaunchRefusedError, Machine, Machines

if TYPE_CHECKING:
    from sunspot.node.azure.live import Live, LiveSettings

log = logging.getLogger(__name__)


class MachinesProvider(NodeProvider):
    """Ray's node provider for the `Machines` that its config names.

    The head is listed, since Ray looks for it, and never terminated: Ray requests that when the
    head itself is stopped.
    """

    def __init__(self, provider_config: dict[str, Any], cluster_name: str) -> None:
        super().__init__(provider_config, cluster_name)
        told = infeasible.only_what_can_never_be(ResourceDemandScheduler.schedule)
        ResourceDemandScheduler.schedule = told  # pyright: ignore[reportAttributeAccessIssue]
        self._machines: Machines = _made("machines", provider_config)
        self._live: Live | None = (
            _made("live", provider_config) if "live" in provider_config else None
        )
        self._followed: LiveSettings | None = None
        self._fallback = Fallback(Path(provider_config["config_file"]), provider_config["twins"])

    def non_terminated_nodes(self, tag_filters: dict[str, str]) -> list[str]:
        self._follow()
        machines = self._machines.list()
        self._fallback.update(machines)
        wanted = tag_filters.items()
        return [machine.id for machine in machines if wanted <= _tags(machine).items()]

    # Ray calls these for each machine that it was just told of, one by one.

    def node_tags(self, node_id: str) -> dict[str, str]:
        machine = self._machines.find(node_id)
        return {} if machine is None else _tags(machine)

    def is_running(self, node_id: str) -> bool:
        machine = self._machines.find(node_id)
        return machine is not None and machine.running

    def is_terminated(self, node_id: str) -> bool:
        return self._machines.find(node_id) is None

    def create_node_with_resources_and_labels(
        self,
        node_config: dict[str, Any],  # noqa: ARG002 - the shape is in the cluster's record
        tags: dict[str, str],
        count: int,
        resources: dict[str, float],  # noqa: ARG002
        labels: dict[str, str],  # noqa: ARG002
    ) -> dict[str, Any] | None:
        node_type = tags[TAG_RAY_USER_NODE_TYPE]
        self._fallback.check(node_type)
        try:
            self._machines.create(node_type, count)
        except LaunchRefusedError:
            self._fallback.refused(node_type)
            raise
        except LaunchDeniedError as error:
            log.error("%s", error)
            self._fallback.denied(node_type, str(error))
            raise
        self._fallback.granted(node_type)

    def terminate_node(self, node_id: str) -> None:
        machine = self._machines.find(node_id)
        if machine is None or not machine.is_head:
            self._machines.terminate(node_id)

    def _follow(self) -> None:
        """Takes the cluster's settings if they have changed. Ray calls this at each tick."""
        settings = None if self._live is None else self._live.latest()
        config = None if settings is None else settings.autoscaler
        if config is None or settings == self._followed:
            return
        self._machines.follow(config["provider"])  # before Ray reads of new node types
        self._fallback.follow(config)
        if self._followed is not None:
            log.info("the cluster's settings have changed")
        self._followed = settings


def _made(key: str, config: dict[str, Any]) -> Any:
    """Calls the function that the config names, with the config."""
    module, _, function = config[key].rpartition(".")
    return getattr(importlib.import_module(module), function)(config)


def _tags(machine: Machine) -> dict[str, str]:
    return {
        TAG_RAY_NODE_KIND: NODE_KIND_HEAD if machine.is_head else NODE_KIND_WORKER,
        TAG_RAY_USER_NODE_TYPE: machine.node_type,
        TAG_RAY_NODE_STATUS: STATUS_UP_TO_DATE,
    }
