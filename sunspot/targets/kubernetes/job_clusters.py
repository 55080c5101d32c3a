"""The cluster of `sunspot run`: in a RayJob, so that KubeRay ends it where this machine does not.

KubeRay names such a cluster itself, and takes it down with its RayJob.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

from sunspot.errors import SunspotError
from sunspot.stack import Stack
from sunspot.targets.kubernetes import rayjob
from sunspot.targets.kubernetes.api import RAY, Object, path
from sunspot.targets.kubernetes.records import Record
from sunspot.targets.kubernetes.settings import KubernetesSettings

POLL_S = 0.2
# KubeRay names the cluster when it first sees the RayJob.
OPERATOR_PATIENCE_S = 60.0


def fitted(stack: Stack) -> Stack:
    """The stack without what is of no use to one job: a state that outlives the head."""
    settings = KubernetesSettings.of(stack)
    kuberay = settings.kuberay.model_copy(update={"gcs_fault_tolerance": None})
    return stack.with_settings(settings.model_copy(update={"kuberay": kuberay}))


def make(stack: Stack) -> list[dict[str, Any]]:
    """The resources of the stack's cluster, as `raycluster.make`."""
    return rayjob.waiting(stack)


def unnamed(record: Record) -> Record:
    """The record of a cluster that has no name yet, only its RayJob has."""
    job = record.names.cluster
    return replace(record, job=job, names=replace(record.names, cluster=f"{job}-unnamed"))


def named(record: Record) -> Record:
    """The record of a cluster that KubeRay has named; the same if it has not, or is no RayJob's."""
    name = _name(_found(record))
    return replace(record, names=replace(record.names, cluster=name)) if name else record


def wait_for_name(record: Record) -> Record:
    """As `named`, once KubeRay has named it.

    Raises:
        SunspotError: it does not, or refuses the RayJob.
    """
    deadline = time.monotonic() + OPERATOR_PATIENCE_S
    while True:
        found = _found(record)
        status = (found or {}).get("status") or {}
        if _name(found):
            return named(record)
        if status.get("jobDeploymentStatus") == "ValidationFailed":
            raise SunspotError(f"KubeRay refuses the RayJob {record.job}: {status.get('message')}")
        if found is None or time.monotonic() > deadline:
            raise SunspotError(
                f"KubeRay's operator has made no cluster of the RayJob {record.job} in "
                f"{OPERATOR_PATIENCE_S:g} s: does it run, and does it watch namespace "
                f"{record.names.namespace}? See: kubectl describe rayjob {record.job} --namespace "
                f"{record.names.namespace}"
            )
        time.sleep(POLL_S)


def submitted(record: Record, job_id: str) -> None:
    """Names a cluster's job to KubeRay, which watches it from now on."""
    record.cluster().api.patch(where(record), {"spec": {"jobId": job_id}})


def where(record: Record) -> str:
    """The path of a cluster's RayJob."""
    return path(RAY, "rayjobs", record.names.namespace, record.job)


def owner(record: Record) -> Object | None:
    """What `up` or `run` created, and owns the rest: the RayJob, or else the RayCluster."""
    return _found(record) if record.job else record.cluster().found()


def _found(record: Record) -> Object | None:
    return record.cluster().api.find(where(record)) if record.job else None


def _name(found: Object | None) -> str:
    return ((found or {}).get("status") or {}).get("rayClusterName") or ""
