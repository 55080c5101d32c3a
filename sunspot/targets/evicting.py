"""Rehearsing a spot eviction: an ability of targets."""

from __future__ import annotations

import math
from typing import Protocol, runtime_checkable

from sunspot.errors import UsageError
from sunspot.targets.protocol import Progress

# Azure's notice of a spot eviction (Microsoft, "Scheduled Events for Linux VMs", Preempt).
NOTICE_S = 30.0
LONGEST_NOTICE_S = 3600.0


@runtime_checkable
class Evicting(Protocol):
    """A worker can be evicted, as a spot machine is."""

    def evict(self, name: str, node: str, notice_s: float | None, progress: Progress) -> str:
        """Evicts a node of a cluster.

        Args:
            name: the stack's name.
            node: the node's name.
            notice_s: seconds from the notice to the end of the node, for a target that can choose
                it; None for its own, 30 s.
            progress: called with each step.

        Returns:
            What has happened and what comes next, in a sentence.

        Raises:
            UsageError: there is no such node, it cannot be evicted, or not with that notice.
        """
        ...


def check_notice(notice_s: float) -> None:
    """Checks a notice.

    Raises:
        UsageError: it is not a number of seconds above 0 and up to an hour.
    """
    if not (math.isfinite(notice_s) and 0 < notice_s <= LONGEST_NOTICE_S):
        raise UsageError(
            f"--notice {notice_s:g} is not above 0 and at most {LONGEST_NOTICE_S:.0f} seconds; "
            f"Azure gives {NOTICE_S:.0f}"
        )
