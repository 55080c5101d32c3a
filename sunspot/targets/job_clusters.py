"""Clusters for one job each, which end with it even where the command that waits for it is gone."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from sunspot.targets.protocol import Target


@runtime_checkable
class JobClusters(Protocol):
    """A cluster can be told to end with a job, even if the command that waits for it is gone."""

    def for_one_job(self) -> Target:
        """The same target, whose clusters are for one job each."""
        ...

    def submitted(self, name: str, job_id: str) -> None:
        """Tells such a cluster its job.

        Args:
            name: the stack's name.
            job_id: the job's id; it was just submitted.
        """
        ...

    def is_gone(self, name: str) -> bool:
        """Whether a cluster that is recorded has ended, so that `up` starts another one.

        Raises:
            UsageError: it is the cluster of another job, which has not ended.
        """
        ...
