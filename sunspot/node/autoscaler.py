"""The node provider that Ray's own autoscaler (v2) calls to create and terminate machines.

The head's autoscaler config names this class as `provider.module` of `type: external`. Ray wraps
it (ray/autoscaler/v2/instance_manager/node_provider.py, NodeProviderAdapter, 2.60) and calls the
methods below from several threads. The config says where machines come from: see
autoscaler_config.py.
"""

from __future__ import annotations

import importlib
import logging
import time
from collections.abc import Mapping, Sequence
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
from sunspot.node.fallback import ASK_AGAIN_S, COOL_DOWN_S, Fallback
from sunspot.node.machines import (
    AtMaximumError,
    LaunchDeniedError,
    LaunchRefusedError,
    Machine,
    Machines,
)

if TYPE_CHECKING:
    from sunspot.node.azure.live import Live, LiveSettings
    from sunspot.node.joins import Joins

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
        self._joins: Joins | None = (
            _made("joins", provider_config) if "joins" in provider_config else None
        )
        self._followed: LiveSettings | None = None
        self._groups = _groups(provider_config["twins"])
        self._known: frozenset[str] = frozenset()
        self._fallback = Fallback(Path(provider_config["config_file"]), provider_config["twins"])

    def non_terminated_nodes(self, tag_filters: dict[str, str]) -> list[str]:
        self._follow()
        machines = self._machines.list()
        self._watch(machines)
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
        self._check_paused(node_type)
        self._fallback.check(node_type)
        try:
            self._machines.create(node_type, count)
        except LaunchRefusedError as error:
            first = self._fallback.refused(node_type)
            self._tell_refused(node_type, str(error), COOL_DOWN_S, first=first)
            raise
        except AtMaximumError as error:  # to people that is no news
            self._fallback.full(node_type, str(error))
            raise
        except LaunchDeniedError as error:
            log.error("%s", error)
            first = self._fallback.denied(node_type, str(error))
            self._tell_refused(node_type, str(error), 2 * ASK_AGAIN_S, first=first)
            raise
        self._fallback.granted(node_type)
        if self._joins is not None and not self._joins.paused(self._group(node_type)):
            self._joins.teller.granted(self._group(node_type))

    def terminate_node(self, node_id: str) -> None:
        machine = self._machines.find(node_id)
        if machine is not None and machine.is_head:
            return
        self._machines.terminate(node_id)
        if self._joins is not None:
            self._joins.ended(node_id, "by the autoscaler, which gave it back")

    def _watch(self, machines: Sequence[Machine]) -> None:
        """Gives back what did not join, and pauses what never does."""
        if self._joins is None:
            return
        for name in self._joins.update(machines, self._groups):
            try:
                self._machines.terminate(name)
            except Exception:  # Azure's; a later tick tries again, and Ray needs its list now
                log.exception("%s is not given back", name)
        kinds = {machine.node_type for machine in machines} | self._known
        self._fallback.pause({one for one in kinds if self._joins.paused(self._group(one))})

    def _check_paused(self, node_type: str) -> None:
        reason = None if self._joins is None else self._joins.paused(self._group(node_type))
        if reason is not None:
            raise LaunchDeniedError(f"{node_type}: its group is paused: {reason}")

    def _tell_refused(self, node_type: str, reason: str, lasts_s: float, *, first: bool) -> None:
        if self._joins is not None:
            until = time.time() + lasts_s
            self._joins.teller.refused(
                node_type, self._group(node_type), reason, until, first=first
            )

    def _group(self, node_type: str) -> str:
        return self._groups.get(node_type, node_type)

    def _follow(self) -> None:
        """Takes the cluster's settings if they have changed. Ray calls this at each tick."""
        settings = None if self._live is None else self._live.latest()
        if settings is None or settings.autoscaler is None or settings == self._followed:
            return
        config = settings.autoscaler
        kinds = config["available_node_types"].items()
        least = {name: kind["min_workers"] for name, kind in kinds}
        # Before Ray reads of new node types.
        self._machines.follow({**config["provider"], "minimums": least})
        self._groups = _groups(config["provider"]["twins"])
        self._known = frozenset(config["available_node_types"])
        if self._joins is not None:
            self._joins.follow(settings.digest())
        self._fallback.follow(config)
        if self._followed is not None:
            log.info("the cluster's settings have changed")
            if self._joins is not None:
                before = self._followed.autoscaler or {}
                self._joins.teller.tell("changed", "", "", _changes(before, config))
        self._followed = settings


def _groups(twins: Mapping[str, str]) -> dict[str, str]:
    """The group of each on-demand twin, which is named as its spot type."""
    return {twin: spot for spot, twin in twins.items()}


def _changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> str:
    """What differs between two configs of the autoscaler, for people."""
    old, new = before.get("available_node_types", {}), after["available_node_types"]
    said = [
        *(f"{name}: new, {_limits(new[name])}" for name in sorted(new.keys() - old.keys())),
        *(f"{name}: removed" for name in sorted(old.keys() - new.keys())),
        *(
            f"{name}: {_limits(new[name])}, was {_limits(old[name])}"
            for name in sorted(new.keys() & old.keys())
            if _limits(new[name]) != _limits(old[name])
        ),
    ]
    return "; ".join(said) or "other settings"


def _limits(node_type: Mapping[str, Any]) -> str:
    return f"{node_type['min_workers']} to {node_type['max_workers']}"


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
