"""Creating and terminating machines, which is all that Ray's autoscaler needs of a target.

`Machines` is implemented by processes on this host (local/machines.py) and by the scale sets of
Azure (azure/scale_sets.py). Such a module has a function `create(config)`, which the autoscaler's
config names (autoscaler_config.py): another target is another module.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol


class LaunchRefusedError(Exception):
    """There are no such machines now: no capacity, no quota. Another node type may be granted."""


class LaunchDeniedError(Exception):
    """The head may not create machines: it lacks a right. That is not a shortage."""


class AtMaximumError(LaunchDeniedError):
    """The group has all the machines that it may have."""


@dataclass(frozen=True, kw_only=True)
class Machine:
    """One machine. `running` is False while it is still coming up.

    `id` equals the RAY_CLOUD_INSTANCE_ID of its raylet and is never used twice; `node_type` is
    the group's name, or "head".
    """

    id: str
    node_type: str
    is_head: bool
    running: bool


class Machines(Protocol):
    """Called from several threads at once; `terminate` is idempotent."""

    def list(self) -> list[Machine]:
        """All machines that exist or are coming up, the head among them.

        For one that it requested and that was never listed, Ray waits ten minutes: see
        `LocalMachines.list`.
        """
        ...

    def find(self, machine_id: str) -> Machine | None:
        """One of them, None for an unknown id; may be as old as the last `list`."""
        ...

    def create(self, node_type: str, count: int) -> None:
        """Requests `count` more; returns before Ray runs on them.

        Raises:
            LaunchRefusedError: there are none to be had now.
            AtMaximumError: there are as many as there may be.
            LaunchDeniedError: the head may not create them. Other errors: it is not known.
        """
        ...

    def terminate(self, machine_id: str) -> None:
        """Terminates a machine; one that is gone already is not an error."""
        ...

    def follow(self, settings: Mapping[str, Any]) -> None:
        """Takes other settings: the `provider` part of a changed config, and its `minimums`.

        Machines of types that it lacks stay listed until they are terminated.
        """
        ...
