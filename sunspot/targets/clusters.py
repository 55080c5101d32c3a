"""The clusters that are up, on every target, and the one that a command is about."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from sunspot import registry, stack
from sunspot.errors import NotUpError, UsageError
from sunspot.targets.protocol import Target


def get(name: str) -> Target:
    """The target of that name ("local").

    Raises:
        UsageError: there is no such target.
    """
    return registry.package(name).create()


def all_targets(name: str | None = None) -> list[Target]:
    """Every target, or only the named one. Raises as `get` does."""
    return [get(one) for one in (registry.PACKAGES if name is None else (name,))]


class Cluster(NamedTuple):
    """A cluster that is up: its target, and its stack's name."""

    target: Target
    name: str


def running(name: str | None = None, target: str | None = None) -> list[Cluster]:
    """The clusters that are up, by the targets' records; of one name or target, if given."""
    return [
        Cluster(one, up) for one in all_targets(target) for up in one.names() if name in (None, up)
    ]


def only(clusters: Sequence[Cluster]) -> Cluster:
    """The only one of these clusters, of which there is at least one.

    Raises:
        UsageError: there are several; the message says how to choose one.
    """
    if len(clusters) == 1:
        return clusters[0]
    names = list(dict.fromkeys(cluster.name for cluster in clusters))
    if len(names) > 1:
        raise UsageError(f"several clusters are up ({', '.join(names)}); name the stack you mean")
    where = [cluster.target.name for cluster in clusters]
    raise UsageError(
        f"stack {names[0]!r} is up on several targets ({', '.join(where)}); choose one: "
        + " or ".join(f"--target {one}" for one in where)
    )


def find(name: str | None, target: str | None = None) -> Cluster:
    """The cluster of that name; without a name, the only cluster that is up.

    Args:
        name: the stack's name.
        target: the name of the only target to look at; by default all of them.

    Raises:
        NotUpError: no cluster is up, or not the named one.
        UsageError: several are up, and neither name nor target selects one.
    """
    if matching := running(name, target):
        return only(matching)
    if name is not None and (discovered := _discovered(name, target)):
        return discovered
    up = [cluster.name for cluster in running()]
    others = f" (up: {', '.join(up)})" if up else ""
    which = f"stack {name!r} is not up" if name else "no cluster is up"
    on = f" on {target}" if target else ""
    raise NotUpError(f"{which}{on}{others}; start it with: sunspot up {name or _to_name()}")


def _to_name() -> str:
    """What `sunspot up` may be given in the working directory, for a message."""
    try:
        found = stack.names()
    except UsageError:  # not in a project: a stack of this machine needs only its file
        found = stack.names(Path.cwd())
    if "dev" in found:
        return "dev"
    if len(found) > 1:
        return f"STACK (here are {', '.join(found)})"
    return found[0] if found else "--file FILE, or in a project's folder: sunspot up STACK"


def _discovered(name: str, target: str | None) -> Cluster | None:
    """The cluster of that name, if it is up but was not brought up from this machine."""
    for one in all_targets(target):
        if one.discover(name):
            return Cluster(one, name)
    return None
