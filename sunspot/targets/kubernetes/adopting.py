"""A cluster without a record here: Pulumi or another machine made it, or a command was cut off."""

from __future__ import annotations

import time
from dataclasses import replace

from sunspot.errors import SunspotError, UsageError
from sunspot.targets.kubernetes import records, starting
from sunspot.targets.kubernetes.records import Record, Records
from sunspot.targets.protocol import Progress


def adopt(kept: Records, name: str, record: Record) -> bool:
    """Records a cluster that Pulumi or another machine brought up; False if there is none.

    Raises:
        UsageError: this user may not read the token; nothing is recorded then.
    """
    cluster = record.cluster()
    found = cluster.found()
    stack = records.stack_of(found)
    if found is None or stack is None or stack.name != name:
        return False
    # It is not there yet, or has gone already, where a command was interrupted.
    token = starting.find_token(cluster)
    by_pulumi = records.PULUMI_ANNOTATION in found["metadata"]["annotations"]
    kept.write(replace(record.with_claim(stack), by_pulumi=by_pulumi), stack)
    if token is not None:
        kept.write_token(name, token)
    return True


def was_cut_off(kept: Records, name: str, record: Record, progress: Progress) -> bool:
    """Whether a cluster that stands never came to run, since its `up` made no Secret.

    Waits a while, as another machine's `up` may be about to make it.

    Raises:
        UsageError: the Secret of a cluster that runs cannot be read, or is gone.
    """
    if kept.token(name).exists():
        return False
    cluster = record.cluster()
    if record.own_secret and starting.find_token(cluster) is None:
        progress("waiting for the cluster's Secret, which another command may be making")
        deadline = time.monotonic() + starting.CONFIG_PATIENCE_S
        while starting.find_token(cluster) is None and time.monotonic() < deadline:
            if cluster.standing() is None:
                return True
            time.sleep(starting.POLL_S)
        ran = record.by_pulumi or any(pod.runs for pod in cluster.pods())
        if not ran and starting.find_token(cluster) is None:
            return True
    keep_token(kept, name, record)
    return False


def keep_token(kept: Records, name: str, record: Record) -> None:
    """Writes the cluster's token, unless its file has it; another machine may have made it anew.

    Raises:
        UsageError: there is no file, and the Secret cannot be read or is not there.
    """
    file, cluster = kept.token(name), record.cluster()
    try:
        token = starting.find_token(cluster)
    except SunspotError:
        if not file.exists():
            raise
        return
    if token is None:
        if not file.exists():
            raise _no_secret(name, record)
    elif not (file.exists() and file.read_text() == token):
        kept.write_token(name, token)


def _no_secret(name: str, record: Record) -> UsageError:
    names = record.names
    if not record.own_secret:
        return starting.no_secret(names)
    how = f"take the cluster down with: sunspot down {name}"
    if record.by_pulumi:
        how = f"make it anew with: pulumi up -s {name} --refresh"
    return UsageError(
        f"namespace {names.namespace} has no Secret {names.token_secret!r}, without which nobody "
        f"can use {name!r}: the command that makes it has not come to that, or somebody has "
        f"deleted it. Try again, or {how}"
    )


def made_by_pulumi(name: str) -> UsageError:
    """The error for what only Pulumi takes down."""
    return UsageError(
        f"Pulumi made the Ray cluster of {name!r}, and AKS with it: take both down with: "
        f"pulumi destroy -s {name}"
    )
