"""Getting and giving back machines, which is all that Ray's autoscaler needs of a place.

`Machines` is implemented by processes on this host (local/machines.py) and by the scale sets of
Azure (azure/scale_sets.py). Such a module has a function `create(config)`, which the autoscaler's
config names (autoscaler_config.py): another place is another module.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


class LaunchRefusedError(Exception):
    """The place has no such machine to give now: no capacity, no quota. Another kind may do."""


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
        """All machines that exist or are coming up, the head among them."""
        ...

    def find(self, machine_id: str) -> Machine | None:
        """One of them, None for a stranger; may be as old as the last `list`."""
        ...

    def create(self, node_type: str, count: int) -> None:
        """Asks for `count` more; returns before Ray runs on them.

        Raises LaunchRefusedError where the place has none, something else where it cannot say.
        """
        ...

    def terminate(self, machine_id: str) -> None:
        """Gives a machine back; one that is gone already is no error."""
        ...
