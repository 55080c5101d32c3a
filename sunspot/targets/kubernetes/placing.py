"""Where a stack's cluster is to be: a context of a kubeconfig, and a namespace in it."""

from __future__ import annotations

import contextlib
import shlex

from sunspot import stack as stacks
from sunspot.errors import UntrustedError, UsageError
from sunspot.stack import Stack
from sunspot.targets.kubernetes import job_clusters, raycluster, records
from sunspot.targets.kubernetes.access import Place
from sunspot.targets.kubernetes.records import Record, Records
from sunspot.targets.kubernetes.settings import TARGET
from sunspot.targets.kubernetes.values import namespace_name


def at_place(stack: Stack, context: str | None, namespace: str | None) -> Stack:
    """The stack at a place that was named; None leaves what its file says.

    Raises:
        UsageError: that is not a name of a namespace.
    """
    given = {"context": context, "namespace": namespace and namespace_name(namespace)}
    changes = {key: text for key, text in given.items() if text is not None}
    return raycluster.with_settings(stack, **changes)


def placed(stack: Stack) -> tuple[Stack, Record]:
    """The stack with its context and namespace, and the record that it would have.

    Raises:
        UsageError: there is no such place, or the stack's name is not one for a RayCluster.
    """
    given = raycluster.settings(stack)
    place = Place.find(given.context, given.namespace)
    wanted = at_place(stack, place.context or None, place.namespace)
    return wanted, Record(place=place, names=raycluster.names(wanted)).of_stack(wanted)


def called(stack: Stack) -> str:
    """How commands name a stack: with its file, where the project has none of its name."""
    name = shlex.quote(stack.name)
    with contextlib.suppress(UsageError):
        if stacks.find(stack.name) is not None:
            return name
    return f"{name} --file FILE"


def by_name(name: str) -> tuple[str, Record] | None:
    """The name of a stack file's stack, and its record as of `placed`; None without such a file.

    Raises:
        UntrustedError: the file is another user's.
        UsageError: as `placed`.
    """
    try:
        found = stacks.find(name)
    except UntrustedError:
        raise
    except UsageError:
        return None
    if found is None or found.target != TARGET:
        return None
    wanted, record = placed(found.for_target(TARGET))
    return wanted.name, record


def by_file(kept: Records, name: str) -> Record:
    """The record that the stack file gives, where the own one is broken.

    Raises:
        BrokenRecordsError: there is no such file here.
    """
    with contextlib.suppress(UsageError):
        if (found := stacks.find(name)) is not None:
            by_name = record = placed(found.for_target(TARGET))[1]
            # The file may have changed since.
            there = record.cluster().found()
            if there is None:
                record, there = job_clusters.of(record)
            made_from = records.stack_of(there)
            return by_name if made_from is None else record.of_stack(made_from)
    return kept.read(name)
