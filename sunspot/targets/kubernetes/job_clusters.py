"""The cluster of `sunspot run`: in a RayJob, so that KubeRay ends it where this machine does not.

KubeRay names such a cluster itself, and takes it down with its RayJob.
"""

from __future__ import annotations

import contextlib
import time
from dataclasses import replace

from sunspot.errors import HeadLostError, SunspotError, UsageError
from sunspot.stack import Stack
from sunspot.targets.kubernetes import raycluster, rayjob
from sunspot.targets.kubernetes.api import RAY, Object, path
from sunspot.targets.kubernetes.errors import RefusedError
from sunspot.targets.kubernetes.outages import outlast
from sunspot.targets.kubernetes.records import Record
from sunspot.targets.protocol import Progress, silent

POLL_S = 0.2
SEEN_POLL_S = 0.5

_UNNAMED = "-unnamed"

# KubeRay's states of a RayJob (ray-operator/apis/ray/v1/rayjob_types.go, 1.6).
_REFUSED = "ValidationFailed"
_ENDED = ("Complete", "Failed", _REFUSED)
_SEEN = ("Waiting", "Running")

# KubeRay names the cluster when it first sees the RayJob, and makes it then.
OPERATOR_PATIENCE_S = 60.0
# Its probes have seen a cluster that answers within 20 s, and it looks at a RayJob every 3 s.
SEEN_PATIENCE_S = 300.0


def fitted(stack: Stack) -> Stack:
    """The stack without what is of no use to one job: a state that outlives the head."""
    return raycluster.with_settings(stack, gcs_fault_tolerance=None)


def unnamed(record: Record) -> Record:
    """The record of a cluster that has no name yet, only its RayJob has."""
    job = record.names.cluster
    return replace(record, job=job, names=replace(record.names, cluster=f"{job}{_UNNAMED}"))


def named(record: Record) -> Record:
    """The record of a cluster that KubeRay has named; the same if it has not, or is no RayJob's."""
    return _as_named(record, _found(record)) if record.names.cluster.endswith(_UNNAMED) else record


def of(record: Record) -> tuple[Record, Object | None]:
    """The record of the cluster in a RayJob of that name, and the RayJob, if KubeRay named one.

    Without the right to see RayJobs there is none.
    """
    record = unnamed(record)
    with contextlib.suppress(RefusedError):
        if _name(found := _found(record)):
            return _as_named(record, found), found
    return record, None


def refuse_one_at_work(name: str, record: Record) -> None:
    """Raises UsageError if a record is of a RayJob whose cluster stands."""
    found = _found(record)
    if found is None:
        return
    is_over = (found.get("status") or {}).get("jobDeploymentStatus") in _ENDED
    if is_over and named(record).cluster().standing() is None:
        return
    ends = "KubeRay takes it down soon after its command has ended"
    raise UsageError(
        f"{name!r} is the cluster of a `sunspot run`: {ends if is_over else 'wait for its end'}, "
        f"or end it: sunspot down {name}"
    )


def lost(name: str, record: Record) -> SunspotError:
    """The error for a cluster that is gone, or that KubeRay has not made yet."""
    found = _found(record)
    status = (found or {}).get("status") or {}
    state = status.get("jobDeploymentStatus")
    if state == _REFUSED:
        return _refused(record, status)
    if state in _ENDED:
        return _ended(name, status)
    if found is not None and not _name(found):
        return SunspotError(f"KubeRay has not made the cluster of the RayJob {record.job} yet")
    what = f"RayJob {record.job!r}" if record.job and found is None else "RayCluster"
    again = f"sunspot run {name} -- COMMAND" if record.job else f"sunspot up {name}"
    return HeadLostError(
        f"the {what} of {name!r} is gone from {record.place.called}: it was taken down or deleted. "
        f"Start again: sunspot down {name} && {again}"
    )


def _ended(name: str, status: Object) -> HeadLostError:
    """The error for a cluster that KubeRay has taken down: its command ended, or never came."""
    said = " ".join(str(status.get("message") or "").split())
    job = status.get("jobStatus")
    why = "its command had ended" if job else "no command had been submitted to it"
    how = ": ".join(filter(None, (job, said)))
    return HeadLostError(
        f"KubeRay has taken the cluster of {name!r} down, {rayjob.READING_S // 60} minutes after "
        f"it saw that {why}" + (f" ({how})" if how else "")
    )


def _refused(record: Record, status: Object) -> SunspotError:
    return SunspotError(f"KubeRay refuses the RayJob {record.job}: {status.get('message')}")


def is_gone(name: str, record: Record | None) -> bool:
    """Whether a record is of a cluster that KubeRay or somebody has taken down.

    Raises:
        UsageError: it is the cluster of another command, which has not ended.
    """
    if record is None:
        return False
    refuse_one_at_work(name, record)
    return bool(record.job) or record.cluster().standing() is None


def wait_for_cluster(record: Record, progress: Progress) -> Record:
    """As `named`, once KubeRay has named the cluster and made it.

    Raises:
        SunspotError: it does not, or refuses the RayJob.
    """
    progress(f"waiting for KubeRay to make the cluster of the RayJob {record.job}")
    deadline = time.monotonic() + OPERATOR_PATIENCE_S
    while True:
        found = _awaited(record, progress)
        status = found.get("status") or {}
        if status.get("jobDeploymentStatus") == _REFUSED:
            raise _refused(record, status)
        made = _as_named(record, found)
        if _name(found) and outlast(made.cluster().found, progress) is not None:
            return made
        if time.monotonic() > deadline:
            said = list(record.cluster().warnings(found))
            raise SunspotError(
                f"KubeRay's operator has made no cluster of the RayJob {record.job} in "
                f"{OPERATOR_PATIENCE_S:g} s: {said[-1] if said else 'does it run?'} See: kubectl "
                f"describe rayjob {record.job} --namespace {record.names.namespace}"
            )
        time.sleep(POLL_S)


def wait_until_seen(record: Record, progress: Progress) -> None:
    """Waits until KubeRay has seen a job's cluster whole; does nothing for any other cluster.

    Until then its hour for a command to come goes on, even if one has come
    (checkPreRunningDeadlineAndUpdateStatusIfNeeded in rayjob_controller.go, 1.6): where the command
    asks for workers that do not come, KubeRay would never see the cluster ready, and end it.

    Raises:
        SunspotError: it does not in time.
    """
    if not record.job:
        return
    progress("waiting for KubeRay to see the cluster ready")
    deadline = time.monotonic() + SEEN_PATIENCE_S
    while True:
        found = _awaited(record, progress)
        status = found.get("status") or {}
        state = status.get("jobDeploymentStatus")
        if state in _SEEN:
            return
        if state in _ENDED:
            raise SunspotError(f"KubeRay has given the RayJob {record.job} up: {state}")
        if time.monotonic() > deadline:
            raise SunspotError(
                f"timed out: KubeRay has not seen the cluster of the RayJob {record.job} ready, "
                f"which is {state}. See: kubectl describe rayjob {record.job} --namespace "
                f"{record.names.namespace}"
            )
        time.sleep(SEEN_POLL_S)


def _awaited(record: Record, progress: Progress) -> Object:
    """The RayJob of a cluster that starts. Raises SunspotError if it was deleted."""
    found = outlast(lambda: _found(record), progress)
    if found is None:
        raise SunspotError(f"the RayJob {record.job} was deleted while its cluster started")
    return found


def submitted(record: Record, job_id: str) -> None:
    """Names a cluster's job to KubeRay, which watches it from now on."""
    api = record.cluster().api
    outlast(lambda: api.patch(where(record), {"spec": {"jobId": job_id}}), silent)


def where(record: Record) -> str:
    """The path of a cluster's RayJob."""
    return path(RAY, "rayjobs", record.names.namespace, record.job)


def is_anothers(record: Record) -> bool:
    """Whether what is there by a record's names now is of another command."""
    found = owner(record) if record.uid else None
    return found is not None and found["metadata"]["uid"] != record.uid


def stays(name: str, record: Record) -> list[str]:
    """What `down` leaves of another command that has made a cluster of that name since."""
    if not record.uid:
        return []
    job = record.job or record.names.cluster
    one = replace(record, job="", names=replace(record.names, cluster=job))
    with contextlib.suppress(SunspotError):  # what was to go is gone: this is only told
        if any(is_anothers(other) for other in (one, replace(one, job=job))):
            return [f"kept: {name!r} of another command (take it down, too: sunspot down {name})"]
    return []


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
