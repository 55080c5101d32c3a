"""The workers of scale sets that an `up` deletes or replaces: they are drained before it does.

Pulumi writes the head's settings only seconds before it deletes a set, and a program of Pulumi's
cannot wait. So the settings are written first, by which the autoscaler asks for no more machines of
these sets; then their nodes are drained, and each VM is deleted when Ray has left it. Whatever ends
that early, there is no way back for a node that drains: the next `up` goes on.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from sunspot.errors import SunspotError, UsageError
from sunspot.node.autoscaler_config import PAUSED_PRIORITY
from sunspot.node.azure.live import LiveSettings
from sunspot.node.azure.vms import vm_of
from sunspot.targets.azure import missing_role
from sunspot.targets.azure.credentials import Endpoints
from sunspot.targets.azure.head_settings import COMPUTE_VERSION, HeadSettings
from sunspot.targets.azure.plan import cluster_name, scale_set_of
from sunspot.targets.azure.replacing import SCALE_SET, Planning, Replacement
from sunspot.targets.azure.scaling import Cluster, alive, arm_of, machines_of
from sunspot.targets.protocol import Lasting, Progress

# What still runs then is for a person to decide about.
DRAIN_LIMIT_S = 600.0
# What the request to drain takes at most: Ray's Python in the container, and SSH.
DRAIN_START_S = 60.0
# What Azure takes at most to delete machines, after that.
GONE_LIMIT_S = 600.0
POLL_S = 5.0


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
        _Leaving(connect(), leaving, progress, endpoints).run()
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


class _Leaving:
    """The end of some node types' workers."""

    def __init__(
        self, cluster: Cluster, leaving: Sequence[str], progress: Progress, endpoints: Endpoints
    ) -> None:
        self._cluster = cluster
        self._kinds = leaving
        self._progress = progress
        self._arm = arm_of(cluster.vm, endpoints)
        self._machines = machines_of(cluster, self._arm, dict.fromkeys(leaving, 0))
        self._draining: set[str] = set()
        self._deadline = 0.0

    @property
    def _called(self) -> str:
        return ", ".join(self._kinds)

    def run(self) -> None:
        name = self._cluster.stack.name
        self._progress(f"{self._called} will go: the head asks for no more of their workers")
        HeadSettings(self._arm, self._cluster.vm).change(
            lambda found: closed(found, name, self._kinds)
        )
        self._deadline, said = time.monotonic() + DRAIN_LIMIT_S, ""
        while True:
            here = [one.id for one in self._machines.list() if not one.is_head]
            if not here and self._is_empty():
                break
            members = {str(one["node_name"]) for one in alive(self._cluster.handle)}
            working = [one for one in here if one in members]
            self._drain([one for one in working if one not in self._draining])
            for machine in here:
                if machine not in members:
                    self._machines.terminate(machine)
            if working and time.monotonic() > self._deadline:
                raise self._refusal(working)
            text = f"waiting for Azure to delete the last workers of {self._called}"
            if working:
                text = f"waiting for workers of {self._called} to finish: {', '.join(working)}"
            if text != said:
                self._progress(text)
                said = text
            time.sleep(POLL_S)
        self._progress(Lasting(f"{self._called}: all workers have left"))

    def _is_empty(self) -> bool:
        """Whether Azure lists no VM of the sets any more; whether it is too late to wait for it.

        An operation on a set that has others in progress may be refused.
        """
        if time.monotonic() > self._deadline + GONE_LIMIT_S:
            return True
        name = cluster_name(self._cluster.stack.name)
        sets = {scale_set_of(name, kind).lower() for kind in self._kinds}
        path = self._cluster.vm.rpartition("/")[0]
        pages = self._arm.pages(path, COMPUTE_VERSION)
        return not any(vm_of(one).scale_set.lower() in sets for page in pages for one in page)

    def _drain(self, names: Sequence[str]) -> None:
        if not names:
            return
        self._draining.update(names)
        seconds = max(self._deadline - time.monotonic(), 0.0)
        self._progress(
            f"draining {', '.join(names)} (at most {seconds / 60:.0f} minutes; --now would delete "
            "them at once)"
        )
        drain = ["sunspot.node.drain", f"--seconds={seconds:.0f}", "--no-wait", *names]
        self._cluster.run_on_head(drain, DRAIN_START_S)

    def _refusal(self, working: Sequence[str]) -> UsageError:
        return UsageError(
            f"{self._called}: {', '.join(working)} still work after {DRAIN_LIMIT_S / 60:.0f} "
            f"minutes. {_how_it_stands(self._cluster.stack.name, self._kinds)}"
        )
