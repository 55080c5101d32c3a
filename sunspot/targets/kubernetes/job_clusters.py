"""The cluster of `sunspot run`: in a RayJob, so that KubeRay ends it where this machine does not.

KubeRay names such a cluster itself, and takes it down with its RayJob.
"""

from __future__ import annotations

import contextlib
import time
from dataclasses import replace

from sunspot.errors import SunspotError
from sunspot.stack import Stack
from sunspot.targets.kubernetes import raycluster
from sunspot.targets.kubernetes.api import RAY, Object, path
from sunspot.targets.kubernetes.errors import RefusedError
from sunspot.targets.kubernetes.outages import outlast
from sunspot.targets.kubernetes.records import Record
from sunspot.targets.protocol import Progress, silent

POLL_S = 0.2

# KubeRay's states of a RayJob (ray-operator/apis/ray/v1/rayjob_types.go, 1.6).
_REFUSED = "ValidationFailed"
_ENDED = ("Complete", "Failed", _REFUSED)

# KubeRay names the cluster when it first sees the RayJob, and makes it then.
OPERATOR_PATIENCE_S = 60.0


def fitted(stack: Stack) -> Stack:
    """The stack without what is of no use to one job: a state that outlives the head."""
    return raycluster.with_settings(stack, gcs_fault_tolerance=None)


def unnamed(record: Record) -> Record:
    """The record of a cluster that has no name yet, only its RayJob has."""
    job = record.names.cluster
    return replace(record, job=job, names=replace(record.names, cluster=f"{job}-unnamed"))


def named(record: Record) -> Record:
    """The record of a cluster that KubeRay has named; the same if it has not, or is no RayJob's."""
    return _as_named(record, _found(record))


def of(record: Record) -> tuple[Record, Object | None]:
    """The record of the cluster in a RayJob of that name, and the RayJob, if KubeRay named one.

    Without the right to see RayJobs there is none.
    """
    record = unnamed(record)
    with contextlib.suppress(RefusedError):
        if _name(found := _found(record)):
            return _as_named(record, found), found
    return record, None


def is_at_work(record: Record) -> bool:
    """Whether a record is of a RayJob that has not ended."""
    found = _found(record)
    status = (found or {}).get("status") or {}
    return found is not None and status.get("jobDeploymentStatus") not in _ENDED


def has_ended(record: Record | None) -> bool:
    """Whether a record is of a RayJob that has ended, and KubeRay has taken its cluster down."""
    if record is None or not record.job or is_at_work(record):
        return False
    return named(record).cluster().standing() is None


def wait_for_cluster(record: Record, progress: Progress) -> Record:
    """As `named`, once KubeRay has named the cluster and made it.

    Raises:
        SunspotError: it does not, or refuses the RayJob.
    """
    deadline = time.monotonic() + OPERATOR_PATIENCE_S
    while True:
        found = outlast(lambda: _found(record), progress)
        status = (found or {}).get("status") or {}
        if status.get("jobDeploymentStatus") == _REFUSED:
            raise SunspotError(f"KubeRay refuses the RayJob {record.job}: {status.get('message')}")
        made = _as_named(record, found)
        if _name(found) and outlast(made.cluster().found, progress) is not None:
            return made
        if found is None or time.monotonic() > deadline:
            said = [] if found is None else record.cluster().warnings(found)
            raise SunspotError(
                f"KubeRay's operator has made no cluster of the RayJob {record.job} in "
                f"{OPERATOR_PATIENCE_S:g} s: {said[-1] if said else 'does it run?'} See: kubectl "
                f"describe rayjob {record.job} --namespace {record.names.namespace}"
            )
        time.sleep(POLL_S)


def submitted(record: Record, job_id: str) -> None:
    """Names a cluster's job to KubeRay, which watches it from now on."""
    api = record.cluster().api
    outlast(lambda: api.patch(where(record), {"spec": {"jobId": job_id}}), silent)


def where(record: Record) -> str:
    """The path of a cluster's RayJob."""
    return path(RAY, "rayjobs", record.names.namespace, record.job)


def owner(record: Record | None) -> Object | None:
    """What `up` or `run` created, and owns the rest: the RayJob, or else the RayCluster."""
    if record is None:
        return None
    return _found(record) if record.job else record.cluster().found()


def _found(record: Record) -> Object | None:
    return record.cluster().api.find(where(record)) if record.job else None


def _as_named(record: Record, found: Object | None) -> Record:
    name = _name(found)
    return replace(record, names=replace(record.names, cluster=name)) if name else record


def _name(found: Object | None) -> str:
    return ((found or {}).get("status") or {}).get("rayClusterName") or ""
