"""Where a cluster differs from its stack file: scaled by hand, edited, or not yet rolled."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

from sunspot import stack as stacks
from sunspot.errors import UsageError
from sunspot.spec import ScalingGroup
from sunspot.stack import Stack
from sunspot.targets import abilities
from sunspot.targets.protocol import Target
from sunspot.targets.scaling import Scaling, Size


@runtime_checkable
class Rolls(Protocol):
    """An `up` replaces the workers whose machines booted from something older."""

    def outdated(self, name: str) -> Sequence[str]:
        """Which workers of a cluster that is up these are, a line for each kind of them.

        Raises:
            SunspotError: the cluster, or where it runs, does not answer.
        """
        ...


def outdated(target: Target, name: str) -> Sequence[str]:
    """As `Rolls.outdated`; nothing for a target whose `up` replaces no workers."""
    rolls = abilities.find(target, Rolls)
    return [] if rolls is None else rolls.outdated(name)


def of(target: Target, name: str) -> list[str]:
    """As `by_hand`, for a cluster that is up and the working directory's file of its stack.

    Where there is no such file, or it is wrong, that is what it said when the cluster was brought
    up.
    """
    scaling = abilities.find(target, Scaling)
    if scaling is None:
        return []
    cluster = file = target.stack(name)
    with contextlib.suppress(UsageError):
        found = stacks.find(name)
        file = cluster if found is None else found.for_target(target.name)
    return by_hand(cluster, scaling.sizes(name), file, f"Pulumi.{name}.yaml")


def by_hand(cluster: Stack, sizes: Mapping[str, Size], file: Stack, where: str) -> list[str]:
    """The groups that were scaled by hand and are not as the file has them, a line each.

    Args:
        cluster: the stack as it was when the cluster was brought up.
        sizes: the size of each group now.
        file: the stack as its file describes it now.
        where: the file, as people call it.
    """
    started, declared = _groups(cluster), _groups(file)
    return [
        _line(file.name, declared[group], now, where)
        for group, now in sizes.items()
        if group in declared
        and now != _size(started[group], now)
        and now != _size(declared[group], now)
    ]


def has_other_settings(cluster: Stack, sizes: Mapping[str, Size], file: Stack) -> bool:
    """Whether the file says something that was neither there at `up` nor has come by scaling.

    The arguments are those of `by_hand`.
    """
    described, declared = cluster.model_dump(mode="json"), _groups(file)
    for group in described["cluster"]["scaling_groups"]:
        name = group["name"]
        if name in sizes and name in declared:
            _take_if_kept(group, sizes[name], declared[name])
    return described != file.model_dump(mode="json")


def _take_if_kept(described: dict[str, Any], now: Size, declared: ScalingGroup) -> None:
    """Gives a group its size of now, if that is what the file says."""
    if now == _size(declared, now):
        described["min_workers"] = now.minimum
        if now.maximum is not None:
            described["max_workers"] = now.maximum


def _groups(stack: Stack) -> dict[str, ScalingGroup]:
    return {group.name: group for group in stack.cluster.scaling_groups}


def _size(group: ScalingGroup, like: Size) -> Size:
    """A group's size in its stack; a number where `like` is one, since no autoscaler runs."""
    if like.maximum is None:
        return Size(minimum=group.min_workers)
    return Size(minimum=group.min_workers, maximum=group.max_workers)


def _line(stack: str, declared: ScalingGroup, now: Size, where: str) -> str:
    group, was = declared.name, _size(declared, now)
    wanted = {"min_workers": now.minimum, "max_workers": now.maximum}
    given = {"min_workers": was.minimum, "max_workers": was.maximum}
    keys = ", ".join(f"{key}: {value}" for key, value in wanted.items() if value != given[key])
    return (
        f"group {group!r} was scaled by hand to {now}; {where} says {was}. To keep {now}, write "
        f"{keys} there; to go back: sunspot scale {stack} {group}={was}"
    )
