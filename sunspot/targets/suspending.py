"""Suspending a cluster and bringing it back. An ability of targets."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from sunspot.targets.protocol import UP_TIMEOUT_S, Progress, Up


@runtime_checkable
class Suspending(Protocol):
    """A cluster's nodes can be ended while its records and its state are kept."""

    def suspend(self, name: str, progress: Progress) -> None:
        """Ends every node of a cluster, and what runs on them; Ctrl-C does not cut it short.

        Raises:
            UsageError: it is suspended already.
            NotUpError: there is no such cluster, or it is still starting.
        """
        ...

    def start(self, name: str, progress: Progress, *, timeout_s: float = UP_TIMEOUT_S) -> Up:
        """Brings a suspended cluster back, with the sizes that its groups had.

        It returns when every minimum worker is a member and the job API answers. If it fails or is
        interrupted, the cluster is suspended as before.

        Raises:
            UsageError: the cluster is not suspended.
            NotUpError: there is no such cluster.
        """
        ...

    def is_suspended(self, name: str) -> bool:
        """Whether there is a cluster of that name, and it is suspended."""
        ...
