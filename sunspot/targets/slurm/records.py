"""The records of clusters on Slurm: what `down` needs, apart from what describes the cluster.

job.json is written before the job is submitted, with a name that no other job has, so that `down`
finds what a killed `up` submitted, and what a cluster with a broken record runs.
"""

from __future__ import annotations

import secrets
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from pydantic import ValidationError

from sunspot.stack import Stack
from sunspot.targets.records import Folders, not_up

JOB_FILE, CLUSTER_FILE = "job.json", "cluster.json"

# Without job.json, `down` finds nothing.
BY_HAND = (
    "Without it the cluster's jobs, called sunspot-{name}-..., are found only by hand: list them "
    "with `squeue --me`, cancel them with `scancel`, then remove the folder of that file"
)


@dataclass(frozen=True, kw_only=True)
class JobRecord:
    """A cluster's jobs.

    Attributes:
        name: the name of the job that the head is in.
        joining: the names of the jobs that join it, by the group.
        folder: the job's folder, an absolute path that all nodes share.
        login_host: where Slurm's commands run; None for this machine.
    """

    name: str
    joining: dict[str, str]
    folder: str
    login_host: str | None

    @property
    def names(self) -> list[str]:
        """The names of all jobs that the cluster may have."""
        return [self.name, *self.joining.values()]


def new_job(stack: Stack, root: str, login_host: str | None) -> JobRecord:
    """The record of a job that is not submitted yet; `root` is the folder of all clusters."""
    name = f"sunspot-{stack.name}-{secrets.token_hex(4)}"
    return JobRecord(
        name=name,
        joining={group.name: f"{name}-{group.name}" for group in stack.cluster.scaling_groups},
        folder=f"{root}/{name}",
        login_host=login_host,
    )


@dataclass(frozen=True)
class Records:
    """The records in `folders`."""

    folders: Folders

    def write(self, job: JobRecord, stack: Stack) -> None:
        """Records a cluster before its job is submitted."""
        self.folders.write(stack.name, JOB_FILE, asdict(job))
        self.folders.write(stack.name, CLUSTER_FILE, {"stack": stack.model_dump(mode="json")})

    def job(self, name: str) -> JobRecord:
        """A cluster's jobs.

        Raises:
            NotUpError: there is no such cluster.
            BrokenRecordsError: the record cannot be read.
        """
        folders = replace(self.folders, remedy=BY_HAND)
        record = folders.read(name, JOB_FILE)
        if record is None:
            raise not_up(name)
        try:
            return JobRecord(**record)
        except TypeError as error:
            raise folders.broken(name, folders.path(name) / JOB_FILE, error) from error

    def stack(self, name: str) -> Stack:
        """A cluster's stack. Raises as `job` does."""
        record = self.folders.read(name, CLUSTER_FILE)
        if record is None:
            raise not_up(name)
        try:
            return Stack.model_validate(record["stack"])
        except (KeyError, ValidationError) as error:
            file: Path = self.folders.path(name) / CLUSTER_FILE
            raise self.folders.broken(name, file, error) from error
