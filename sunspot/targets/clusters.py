"""The clusters that are up, on every target, and the one that a command means."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from sunspot.errors import SunspotError, UsageError
from sunspot.stack import Stack
from sunspot.targets.protocol import Remote, Target
from sunspot.targets.registry import places


class Cluster(NamedTuple):
    """A cluster that is up: its place, its stack's name, and the name of the place."""

    place: Target
    name: str
    where: str


def check_scale(stack: Stack, group: str, count: int) -> None:
    """Refuses, with UsageError, a group that is not there or a count outside 0 to max_workers."""
    groups = {g.name: g for g in stack.cluster.scaling_groups}
    if group not in groups:
        known = ", ".join(groups) or "none"
        raise UsageError(f"stack {stack.name!r} has no group {group!r}; it has: {known}")
    if not 0 <= count <= groups[group].max_workers:
        raise UsageError(
            f"{group}={count} is outside 0 to {groups[group].max_workers}, its max_workers; "
            f"raise max_workers in Pulumi.{stack.name}.yaml and bring the stack up anew"
        )


def running(name: str | None = None, target: str | None = None) -> list[Cluster]:
    """The clusters that are up, as the targets' records tell; of one name or place, if given."""
    return [
        Cluster(place, up, where)
        for where, place in places(target).items()
        for up in place.names()
        if name in (None, up)
    ]


def only(clusters: Sequence[Cluster]) -> Cluster:
    """The one of these clusters. Raises UsageError, with how to say which, if they are several."""
    if len(clusters) == 1:
        return clusters[0]
    names = list(dict.fromkeys(cluster.name for cluster in clusters))
    if len(names) > 1:
        raise UsageError(f"several clusters are up ({', '.join(names)}); say which stack you mean")
    where = [cluster.where for cluster in clusters]
    raise UsageError(
        f"stack {names[0]!r} is up in two places ({', '.join(where)}); say which one you mean: "
        + " or ".join(f"--target {one}" for one in where)
    )


def find(name: str | None, target: str | None = None) -> Cluster:
    """The cluster that is up: the one named, or the only one; on one target, if that is named.

    Raises:
        SunspotError: none is up, or the named one is not.
        UsageError: several are, and neither name nor target says which.
    """
    if matching := running(name, target):
        return only(matching)
    if name is not None and (adopted := _adopted(name, target)):
        return adopted
    up = [cluster.name for cluster in running()]
    others = f" (up: {', '.join(up)})" if up else ""
    which = f"stack {name!r} is not up" if name else "no cluster is up"
    on = f" on {target}" if target else ""
    raise SunspotError(f"{which}{on}{others}; start it with: sunspot up {name or 'dev'}")


def _adopted(name: str, target: str | None) -> Cluster | None:
    """The cluster of that name that was not brought up by this command."""
    for where, place in places(target).items():
        if isinstance(place, Remote) and place.adopt(name):
            return Cluster(place, name, where)
    return None
