"""Abilities that only some targets have: looked up here, never by a target's class or name."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, TypeVar

from sunspot.errors import UsageError
from sunspot.spec import ScalingGroup
from sunspot.stack import Stack
from sunspot.targets.callers import Opens
from sunspot.targets.consent import DeletesLeftBehind, DrainsGroups, ReplacesHeads
from sunspot.targets.contacting import Contacting
from sunspot.targets.evicting import Evicting
from sunspot.targets.for_caller import ForCaller
from sunspot.targets.forwarding import Forwarding
from sunspot.targets.head_notebook import HeadNotebooks
from sunspot.targets.history import History
from sunspot.targets.idling import Idling
from sunspot.targets.job_clusters import JobClusters
from sunspot.targets.job_manifests import JobManifests
from sunspot.targets.protocol import (
    Batches,
    GpuMakers,
    Manifests,
    NodeLogs,
    Outputs,
    Places,
    Preconditions,
    Rights,
    Shells,
    Target,
)
from sunspot.targets.scaling import Scaling
from sunspot.targets.served import ServedManifests
from sunspot.targets.suspending import Suspending

A = TypeVar("A")

Kind = Literal["node", "group"]

_WHAT: dict[type, str] = {
    Scaling: "scaling groups by hand",
    NodeLogs: "logs of single nodes",
    Evicting: "rehearsing an eviction",
    History: "a record of what happened to its nodes",
    Shells: "a shell on the head",
    Forwarding: "reaching ports of the head",
    HeadNotebooks: "JupyterLab on the head",
    Opens: "opening Serve to other machines",
    Outputs: "the outputs of a program",
    Preconditions: "checking what a stack needs",
    Contacting: "a first contact",
    Manifests: "printing what it is given",
    Rights: "printing the rights that it needs",
    ServedManifests: "printing what it is given for Ray Serve",
    JobManifests: "printing what it is given for one command",
    Batches: "a cluster for one command",
    ForCaller: "clusters that end with their caller",
    JobClusters: "ending a cluster after one job by itself",
    ReplacesHeads: "replacing its head",
    DrainsGroups: "removing groups without a drain",
    DeletesLeftBehind: "deleting what is left behind",
    Suspending: "suspending clusters",
    Idling: "looking after idle clusters",
    GpuMakers: "choosing the maker of its GPUs",
    Places: "a context and a namespace",
}


def unknown(stack: str, kind: Kind, wanted: str, known: Iterable[str]) -> UsageError:
    """The error for a node or a group that a stack does not have, the same on every target."""
    has = ", ".join(known) or "none"
    return UsageError(f"stack {stack!r} has no {kind} {wanted!r}; it has: {has}")


def group(stack: Stack, name: str) -> ScalingGroup:
    """The group of that name.

    Raises:
        UsageError: there is none; the message lists the groups.
    """
    groups = {one.name: one for one in stack.cluster.scaling_groups}
    if name not in groups:
        raise unknown(stack.name, "group", name, groups)
    return groups[name]


def find(target: Target, ability: type[A]) -> A | None:
    """The target, if it has this ability; otherwise None."""
    return target if isinstance(target, ability) else None


def need(target: Target, ability: type[A]) -> A:
    """The target, if it has this ability.

    Raises:
        UsageError: it does not.
    """
    found = find(target, ability)
    if found is None:
        raise UsageError(f"target {target.name!r} does not support {_WHAT[ability]}")
    return found
