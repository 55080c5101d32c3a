"""The members of a cluster, as its GCS knows them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from sunspot.node import gcs
from sunspot.node.metrics import EventLog

T = TypeVar("T")

# Ray's autoscaler waits for the answer.
RPC_TIMEOUT_S = 2.0
# The events that take a machine away (Microsoft, "Scheduled Events for Linux VMs").
EVICTIONS = frozenset({"Preempt", "Terminate"})
# How Ray tells of a node that was drained (NodeDeathInfo, 2.60).
DRAINS = frozenset({"AUTOSCALER_DRAIN_PREEMPTED", "AUTOSCALER_DRAIN_IDLE"})


class GcsMembers:
    """Asks the GCS at HOST:PORT. The methods raise Ray's errors."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._client: Any = None

    def names(self) -> set[str]:
        """The names of the nodes that are members now."""
        return self._asked(lambda client: set(gcs.alive_nodes(client, RPC_TIMEOUT_S)))

    def labels(self) -> dict[str, dict[str, str]]:
        """The labels of each node that is a member now, by its name."""
        return self._asked(lambda client: gcs.labels_by_name(client, RPC_TIMEOUT_S))

    def evicted(self, machine_id: str) -> bool:
        """Whether a node told of the notice of its eviction."""
        entries = EventLog(self._address).read()
        return any(one.node == machine_id and one.type in EVICTIONS for one in entries)

    def drained(self, machine_id: str) -> bool:
        """Whether a node that is a member no more was drained.

        So is one that ended by itself when its work had, and one that was stopped after the drain's
        deadline: Ray words both alike, and does not keep the deadline (GcsNodeManager's
        InferDeathInfo, and LocalResourceManager's DeathInfoFromDrainRequest, 2.60). One that was
        stopped before its deadline, as if nobody had drained it, is not.
        """
        return self._asked(lambda client: gcs.death(client, machine_id, RPC_TIMEOUT_S)) in DRAINS

    def _asked(self, call: Callable[[Any], T]) -> T:
        try:
            self._client = self._client or gcs.connect(self._address)
            return call(self._client)
        except Exception:  # Ray's errors have no common class
            self._client = None
            raise
