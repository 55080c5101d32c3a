"""The workers of scale sets that an `up` deletes or replaces: they are drained before it does.

Pulumi writes the head's settings only seconds before it deletes a set, and a program of Pulumi's
cannot wait. So the settings are written first, by which the autoscaler asks for no more machines of
these sets; then their nodes are drained, and each VM is deleted when Ray has left it. Whatever ends
that early, there is no way back for a node that drains: the next `up` goes on.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from sunspot.errors import SunspotError, UsageError
from sunspot.node.autoscaler_config import PAUSED_PRIORITY
from sunspot.node.azure.live import LiveSettings
from sunspot.targets.azure import missing_role
from sunspot.targets.azure.credentials import Endpoints
from sunspot.targets.azure.draining import StillWorkingError, Workers
from sunspot.targets.azure.head_settings import HeadSettings
from sunspot.targets.azure.plan import cluster_name, scale_set_of
from sunspot.targets.azure.replacing import SCALE_SET, Planning, Replacement
from sunspot.targets.azure.scaling import Cluster
from sunspot.targets.protocol import Lasting, Progress


def kinds(found: Sequence[Replacement], engine: Planning, stack: str) -> list[str]:
    """The node types whose scale sets an `up` deletes, or replaces, while the head stays.

    Args:
        found: what it replaces and deletes.
        engine: the stack, of Pulumi's, which has the sets' names.
        stack: the stack's name.
    """
    urns = {one.urn for one in found if one.type == SCALE_SET}
    if not urns or any(one.is_irreplaceable for one in found):
        return []
    state = engine.state()
    resources = () if state is None else state.resources
    sets = [one.id.rpartition("/")[2] for one in resources if one.urn in urns]
    return [one.removeprefix(scale_set_of(cluster_name(stack), "")) for one in sets]


def drain(
    name: str,
    connect: Callable[[], Cluster],
    leaving: Sequence[str],
    progress: Progress,
    endpoints: Endpoints,
) -> None:
    """Drains and deletes all workers of these node types; returns when they are gone.

    Args:
        name: the stack's name.
        connect: reaches its cluster.
        leaving: the node types.
        progress: called with each step.
        endpoints: the addresses of Azure.

    Raises:
        UsageError: some still work at DRAIN_LIMIT_S.
        SunspotError: the head cannot be reached; Azure or Ray refused, or did not answer.
    """
    from sunspot.node.azure.arm import ArmError

    try:
        _end(connect(), leaving, progress, endpoints)
    except ArmError as error:
        failure = SunspotError(missing_role.explained(str(error)))
        failure.add_note(_how_it_stands(name, leaving))
        raise failure from error
    except (SunspotError, KeyboardInterrupt) as error:
        if not isinstance(error, UsageError):  # which says so itself
            error.add_note(_how_it_stands(name, leaving))
        raise


def _how_it_stands(name: str, leaving: Sequence[str]) -> str:
    """What to do where this ended early."""
    return (
        f"No scale set was deleted. Workers of {', '.join(leaving)} that drain take no new work, "
        f"and leave when theirs ends. Go on: sunspot up {name} · delete them with what runs on "
        f"them: sunspot up {name} --now · keep the group: put it back into Pulumi.{name}.yaml, "
        f"then: sunspot up {name}"
    )


def closed(settings: LiveSettings, stack: str, leaving: Sequence[str]) -> LiveSettings:
    """The settings once no machine of these node types is asked for.

    Their maximum in Ray's own config stays: Ray stops nodes above it, without a drain (RayStopper,
    2.60). The provider's is 0, and any other type that fits is preferred.
    """
    sets = {scale_set_of(cluster_name(stack), kind).lower() for kind in leaving}
    idle = settings.idle
    if idle is not None:
        idle = {**idle, "fixed": [one for one in idle["fixed"] if one.lower() not in sets]}
    config: Any = copy.deepcopy(settings.autoscaler)
    if config is not None:
        types, provider = config["available_node_types"], config["provider"]
        for kind in types.keys() & set(leaving):
            types[kind] |= {"min_workers": 0, "priority": PAUSED_PRIORITY}
            provider["maximums"][kind] = 0
        twins = provider["twins"].items()
        provider["twins"] = {spot: twin for spot, twin in twins if not {spot, twin} & {*leaving}}
    noted = tuple(sorted({*settings.leaving, *leaving}))
    return replace(settings, autoscaler=config, idle=idle, leaving=noted)


def _end(
    cluster: Cluster, leaving: Sequence[str], progress: Progress, endpoints: Endpoints
) -> None:
    called, name = ", ".join(leaving), cluster.stack.name
    workers = Workers(cluster, dict.fromkeys(leaving, 0), progress, endpoints)
    progress(f"{called} will go: the head asks for no more of their workers")
    HeadSettings(workers.arm, cluster.vm).change(lambda found: closed(found, name, leaving))
    try:
        workers.leave(called)
    except StillWorkingError as error:
        raise UsageError(f"{called}: {error}. {_how_it_stands(name, leaving)}") from error
    progress(Lasting(f"{called}: all workers have left"))
