"""The clusters that are up, on every target, and the one that a command means."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from sunspot.errors import SunspotError, UsageError
from sunspot.targets import registry
from sunspot.targets.protocol import Target


class Cluster(NamedTuple):
    """A cluster that is up: its target, and its stack's name."""

    target: Target
    name: str


def running(name: str | None = None, target: str | None = None) -> list[Cluster]:
    """The clusters that are up, as the targets' records tell; of one name or target, if given."""
    return [
        Cluster(one, up)
        for one in registry.all_targets(target)
        for up in one.names()
        if name in (None, up)
    ]


def only(clusters: Sequence[Cluster]) -> Cluster:
    """The one of these clusters. Raises UsageError, with how to say which, if they are several."""
    if len(clusters) == 1:
        return clusters[0]
    names = list(dict.fromkeys(cluster.name for cluster in clusters))
    if len(names) > 1:
        raise UsageError(f"several clusters are up ({', '.join(names)}); say which stack you mean")
    where = [cluster.target.name for cluster in clusters]
    raise UsageError(
        f"stack {names[0]!r} is up on several targets ({', '.join(where)}); say which one you "
        "mean: " + " or ".join(f"--target {one}" for one in where)
    )


def find(name: str | None, target: str | None = None) -> Cluster:
    """The cluster that is up: the one named, or the only one; on one target, if that is named.

    Raises:
        SunspotError: none is up, or the named one is not.
        UsageError: several are, and neither name nor target says which.
    """
    if matching := running(name, target):
        return only(matching)
    if name is not None and (discovered := _discovered(name, target)):
        return discovered
    up = [cluster.name for cluster in running()]
    others = f" (up: {', '.join(up)})" if up else ""
    which = f"stack {name!r} is not up" if name else "no cluster is up"
    on = f" on {target}" if target else ""
    raise SunspotError(f"{which}{on}{others}; start it with: sunspot up {name or 'dev'}")


def _discovered(name: str, target: str | None) -> Cluster | None:
    """The cluster of that name that was not brought up from this machine."""
    for one in registry.all_targets(target):
        if one.discover(name):
            return Cluster(one, name)
    return None
