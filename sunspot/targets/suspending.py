"""Suspending a cluster and bringing it back. An ability of targets."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from sunspot.errors import SunspotError, SuspendedError, UsageError
from sunspot.ray.handle import ClusterHandle
from sunspot.targets.protocol import UP_TIMEOUT_S, Progress, Up


@runtime_checkable
class Suspending(Protocol):
    """A cluster's nodes can be ended while its records and its state are kept."""

    def suspend(self, name: str, progress: Progress) -> Sequence[str]:
        """Ends every node of a cluster, and what runs on them.

        Ctrl-C does not cut it short, or leaves a cluster that the next `suspend` goes on with.

        Returns:
            What a person should know of it, a sentence each: what is still billed.

        Raises:
            UsageError: it is suspended already.
            NotUpError: there is no such cluster, or it is still starting.
        """
        ...

    def start(self, name: str, progress: Progress, *, timeout_s: float = UP_TIMEOUT_S) -> Up:
        """Brings a suspended cluster back, with the sizes that its groups had.

        It returns when every minimum worker is a member and the job API answers. If it fails or is
        interrupted, the cluster is suspended as before, or the error says that it is not.

        Raises:
            UsageError: the cluster is not suspended.
            NotUpError: there is no such cluster.
        """
        ...

    def is_suspended(self, name: str) -> bool:
        """Whether there is a cluster of that name, and it is suspended."""
        ...


def suspended(name: str) -> SuspendedError:
    """The error for what a suspended cluster cannot do."""
    return SuspendedError(
        f"stack {name!r} is suspended. Bring it back with: sunspot start {name}; or remove it: "
        f"sunspot down {name}"
    )


def not_suspended(name: str) -> UsageError:
    """The error for what cannot be brought back."""
    return UsageError(
        f"stack {name!r} is not suspended, so there is nothing to start: it is up; see "
        f"sunspot status {name}"
    )


def stop_jobs(handle: ClusterHandle, progress: Progress) -> None:
    """Stops the jobs that have not ended; what Ray does not do in time ends with its processes.

    Otherwise a restarted GCS would have them as running until the next one is submitted: only then
    does Ray look after them (ray/dashboard/modules/job/job_manager.py, _recover_running_jobs,
    2.60).
    """
    from sunspot.ray.jobs import JobClient

    with contextlib.suppress(SunspotError):
        client = JobClient(handle)
        for job in client.list():
            if not job.has_ended:
                progress(f"stopping job {job.id}")
                client.stop(job.id)
