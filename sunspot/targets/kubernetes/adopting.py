"""A cluster without a record here: Pulumi or another machine made it, or a command was cut off."""

from __future__ import annotations

import contextlib
import time
from dataclasses import replace
from pathlib import Path

from sunspot.errors import SunspotError, UsageError
from sunspot.stack import Stack
from sunspot.targets.kubernetes import job_clusters, raycluster, records, starting
from sunspot.targets.kubernetes.access import Place
from sunspot.targets.kubernetes.api import Object
from sunspot.targets.kubernetes.errors import RefusedError
from sunspot.targets.kubernetes.objects import Cluster
from sunspot.targets.kubernetes.records import Record, Records
from sunspot.targets.protocol import Progress
from sunspot.targets.records import readable_disk_errors

# Its storage is protected by default, and stays.
DESTROY = "pulumi destroy --exclude-protected -s"


def adopt(kept: Records, name: str, record: Record) -> bool:
    """Records a cluster that Pulumi or another machine brought up; False if there is none.

    Without its token, if this user may not read that, or the command that makes it was cut off.
    """
    found = record.cluster().found()
    if found is None:
        record, found = job_clusters.of(record)
    if found is not None and records.is_unreadable(found):
        raise _of_another_version(found)
    stack = records.stack_of(found)
    if found is None or stack is None or stack.name != name:
        return False
    by_pulumi = records.PULUMI_ANNOTATION in found["metadata"]["annotations"]
    uid = found["metadata"]["uid"]
    made = replace(record.of_stack(stack), by_pulumi=by_pulumi, uid=uid)
    token = None
    with contextlib.suppress(RefusedError):
        token = starting.find_token(made.cluster())
    kept.write(made, stack)
    if token is not None:
        kept.write_token(name, token)
    return True


def renew(kept: Records, name: str) -> None:
    """Brings the record of what Pulumi made up to date, which a `pulumi up` may have changed."""
    record = kept.readable(name)
    if record is None or not record.by_pulumi:
        return
    with contextlib.suppress(SunspotError):  # what cannot be asked now is as it was
        stack = records.stack_of(record.cluster().found())
        if stack is not None and stack != kept.stack(name):
            adopt(kept, name, record)


def _of_another_version(found: Object) -> UsageError:
    kind, where = found["kind"], found["metadata"]
    return UsageError(
        f"another version of Sunspot made the {kind} {where['name']!r} in namespace "
        f"{where['namespace']}, and this one cannot read its stack: use that version, or delete "
        f"it: kubectl delete {kind.lower()} {where['name']} --namespace {where['namespace']}"
    )


def adopt_visible(kept: Records, name: str, record: Record) -> bool:
    """As `adopt`; of what the user may not see, the checks before a start name the rights.

    Raises:
        TakenError: there is a RayCluster of that name, which `sunspot up` did not make.
    """
    with contextlib.suppress(RefusedError):
        if adopt(kept, name, record):
            return True
        if record.cluster().found() is not None:
            raise starting.taken(name, record.cluster())
    return False


def refuse_another_place(kept: Records, stack: Stack) -> None:
    """Raises UsageError where a stack is up, and is now to be in another place."""
    record = kept.readable(stack.name)
    if record is None:
        return
    with kept.without_its_kubernetes(stack.name):
        standing = record.cluster().standing()
    if standing is None:
        return
    given, is_in = raycluster.settings(stack), record.names.namespace
    if given.context not in (None, record.place.context):
        other = Place.find(given.context, given.namespace).configuration()
        if other.host != record.place.configuration().host:
            raise _is_elsewhere(stack.name, record, f"context {given.context}")
    if given.namespace not in (None, is_in):
        raise _is_elsewhere(stack.name, record, f"namespace {given.namespace}")


def _is_elsewhere(name: str, record: Record, asked: str) -> UsageError:
    down = DESTROY if record.by_pulumi else "sunspot down"
    return UsageError(
        f"{name!r} is up in namespace {record.names.namespace} of {record.place.called}, and "
        f"cannot be in {asked} as well: give one of them another name, or first: {down} {name}"
    )


def was_cut_off(kept: Records, name: str, record: Record, progress: Progress) -> bool:
    """Whether a cluster that stands never came to run, since its `up` made no Secret.

    Waits a while, as another machine's `up` may be about to make it.

    Raises:
        UsageError: the Secret of a cluster that runs cannot be read, or is gone.
    """
    if kept.token(name).exists():
        return False
    cluster = record.cluster()
    if record.own_secret and not _secret_comes(cluster, progress):
        ran = record.by_pulumi or any(pod.runs for pod in cluster.pods())
        if not ran or cluster.standing() is None:
            return True
    keep_token(kept, name, record)
    return False


def _secret_comes(cluster: Cluster, progress: Progress) -> bool:
    """Whether the Secret is there, or comes in time while the cluster stands."""
    if starting.find_token(cluster) is not None:
        return True
    progress("waiting for the cluster's Secret, which another command may be making")
    deadline = time.monotonic() + starting.CONFIG_PATIENCE_S
    while cluster.standing() is not None and time.monotonic() < deadline:
        time.sleep(starting.POLL_S)
        if starting.find_token(cluster) is not None:
            return True
    return False


def keep_token(kept: Records, name: str, record: Record) -> None:
    """Writes the cluster's token, unless its file has it; another machine may have made it anew.

    Raises:
        UsageError: there is no file, and the Secret cannot be read or is not there.
    """
    file, cluster = kept.token(name), record.cluster()
    if file.exists() and not record.own_secret:
        return  # Ray's processes keep what they began with, whatever the user's Secret has now
    try:
        token = starting.find_token(cluster)
    except SunspotError:
        if not file.exists():
            raise
        return
    if token is None:
        if not file.exists():
            raise _no_secret(name, record)
    elif token != _read(file):
        with readable_disk_errors(kept.folders.root):
            kept.write_token(name, token)


def _read(file: Path) -> str | None:
    with contextlib.suppress(OSError, ValueError):
        return file.read_text()
    return None


def _no_secret(name: str, record: Record) -> UsageError:
    names = record.names
    how = f"take the cluster down with: sunspot down {name}"
    if record.by_pulumi:
        how = f"make it anew with: pulumi up -s {name} --refresh"
    if not record.own_secret:
        how = "create it, with the cluster's token"
    return UsageError(
        f"namespace {names.namespace} has no Secret {names.token_secret!r}, without which nobody "
        f"can use {name!r}: the command that makes it has not come to that, or somebody has "
        f"deleted it. Try again, or {how}"
    )


def made_by_pulumi(name: str, *, is_closed: bool = False) -> UsageError:
    """The error for what only Pulumi takes down; `is_closed` if the port-forward to it was."""
    error = UsageError(
        f"Pulumi made the Ray cluster of {name!r}, and AKS with it: take both down with: "
        f"{DESTROY} {name}"
    )
    if is_closed:
        error.add_note("this machine's port-forward to it is closed")
    return error
