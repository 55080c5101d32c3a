"""Workers that go: they are drained, and each VM is deleted when Ray has left it.

There is no way back for a node that drains, so whatever ends that early, the next `up` goes on.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from sunspot.node.azure.vms import vm_of
from sunspot.targets.azure.credentials import Endpoints
from sunspot.targets.azure.head_settings import COMPUTE_VERSION
from sunspot.targets.azure.plan import cluster_name, scale_set_of
from sunspot.targets.azure.scaling import Cluster, arm_of, machines_of
from sunspot.targets.protocol import Progress

if TYPE_CHECKING:
    from sunspot.node.machines import Machine

# What still runs then is for a person to decide about.
DRAIN_LIMIT_S = 600.0
# What the request to drain takes at most: Ray's Python in the container, and SSH.
DRAIN_START_S = 60.0
# What Azure takes at most to delete machines, after that.
GONE_LIMIT_S = 600.0
POLL_S = 5.0


class StillWorkingError(Exception):
    """Workers still work at DRAIN_LIMIT_S.

    Args:
        names: theirs.
        deleted: the others, which were deleted.
    """

    def __init__(self, names: Sequence[str], deleted: Sequence[str]) -> None:
        super().__init__(f"{', '.join(names)} still work after {DRAIN_LIMIT_S / 60:.0f} minutes")
        self.deleted = deleted


class Workers:
    """The workers of some node types, as Azure lists them and as Ray knows them.

    Azure's names are compared without case.

    Args:
        cluster: their cluster.
        maximums: the most machines by node type.
        progress: called with each step.
        endpoints: the addresses of Azure.
    """

    def __init__(
        self,
        cluster: Cluster,
        maximums: Mapping[str, int],
        progress: Progress,
        endpoints: Endpoints,
    ) -> None:
        self.arm = arm_of(cluster.vm, endpoints)
        self.machines = machines_of(cluster.stack.name, cluster.vm, self.arm, maximums)
        self._cluster = cluster
        self._progress = progress
        name = cluster_name(cluster.stack.name)
        self._sets = {scale_set_of(name, kind).lower() for kind in maximums}

    def here(self) -> list[Machine]:
        """The machines that are not being deleted."""
        return [one for one in self.machines.list() if not one.is_head]

    def nodes(self) -> dict[str, dict[str, Any]]:
        """What Ray's state API tells of each node, dead ones too, by its name in lower case."""
        from sunspot.ray.jobs import JobClient

        found = JobClient(self._cluster.handle).state("nodes")
        # A name that is there again counts as alive.
        ordered = sorted(found, key=lambda one: one["state"] == "ALIVE")
        return {str(one["node_name"]).lower(): one for one in ordered}

    def members(self) -> dict[str, dict[str, Any]]:
        """Those of them that are members now."""
        return {name: one for name, one in self.nodes().items() if one["state"] == "ALIVE"}

    def leave(
        self, called: str, only: Collection[str] | None = None, *, drained: bool = True
    ) -> list[str]:
        """Has workers leave; returns when Azure no longer lists any of them.

        Args:
            called: what they are, for people.
            only: their names; None for all of the node types.
            drained: whether they may end their work before they are deleted.

        Returns:
            The names of those that were deleted here, and not by others, or evicted.

        Raises:
            StillWorkingError: some still work at DRAIN_LIMIT_S.
        """
        names = None if only is None else {one.lower() for one in only}
        deadline, asked, said = time.monotonic() + DRAIN_LIMIT_S, set[str](), ""
        deleted: dict[str, None] = {}
        while True:
            here = [one.id for one in self.here() if names is None or one.id.lower() in names]
            if not here and (self._is_late(deadline) or not self._listed(names)):
                return [*deleted]
            members = self.members() if drained else {}
            working = [members[one.lower()]["node_name"] for one in here if one.lower() in members]
            self._drain([one for one in working if one not in asked], deadline)
            asked.update(working)
            for machine in here:
                if machine.lower() not in members:
                    self.machines.terminate(machine)
                    deleted[machine] = None
            if working and time.monotonic() > deadline:
                raise StillWorkingError(working, [*deleted])
            text = f"waiting for Azure to delete the last workers of {called}"
            if working:
                text = f"waiting for workers of {called} to finish: {', '.join(working)}"
            if text != said:
                self._progress(text)
                said = text
            time.sleep(POLL_S)

    def _is_late(self, deadline: float) -> bool:
        return time.monotonic() > deadline + GONE_LIMIT_S

    def _listed(self, names: Collection[str] | None) -> bool:
        """Whether Azure lists any of them, also one that is being deleted.

        An operation on a set that has others in progress may be refused.
        """
        path = self._cluster.vm.rpartition("/")[0]
        vms = (vm_of(one) for page in self.arm.pages(path, COMPUTE_VERSION) for one in page)
        return any(
            vm.scale_set.lower() in self._sets and (names is None or vm.name.lower() in names)
            for vm in vms
        )

    def _drain(self, names: Sequence[str], deadline: float) -> None:
        if not names:
            return
        seconds = max(deadline - time.monotonic(), 0.0)
        self._progress(
            f"draining {', '.join(names)} (at most {seconds / 60:.0f} minutes; --now would delete "
            "them at once)"
        )
        drain = ["sunspot.node.drain", f"--seconds={seconds:.0f}", "--no-wait", *names]
        self._cluster.run_on_head(drain, DRAIN_START_S)
