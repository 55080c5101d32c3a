"""Which sizes groups were given by hand, beside those of the stack file, in a cluster's settings.

What `sunspot scale` gives holds until the file's own size of that group is edited: an update of the
stack carries it over, and says so.
"""

from __future__ import annotations

import copy
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from sunspot.errors import SunspotError, UsageError
from sunspot.node.azure.live import LiveSettings
from sunspot.spec import ScalingGroup
from sunspot.targets.scaling import Size

Limits = tuple[int, int]


@dataclass(frozen=True, kw_only=True)
class ByHand:
    """What one group was given.

    Attributes:
        size: the fewest and the most workers; both are the same for a fixed group.
        file: what the stack file said then.
        nonce: differs each time, so that the head notices an equal size too.
    """

    size: Limits
    file: Limits
    nonce: str

    def plain(self) -> dict[str, Any]:
        """It as JSON has it."""
        return {"size": [*self.size], "file": [*self.file], "nonce": self.nonce}


def entries(settings: LiveSettings) -> dict[str, ByHand]:
    """What was given by hand, by group.

    Raises:
        SunspotError: it is not what Sunspot writes.
    """
    try:
        return {
            name: ByHand(
                size=_limits(one["size"]), file=_limits(one["file"]), nonce=str(one["nonce"])
            )
            for name, one in settings.scaled.items()
        }
    except (KeyError, TypeError, ValueError) as error:
        raise SunspotError(
            f"what was scaled by hand cannot be read from the head's user data: {error!r}"
        ) from error


def _limits(value: Iterable[Any]) -> Limits:
    low, high = value
    return int(low), int(high)


def of_file(group: ScalingGroup) -> Limits:
    """The limits that a stack file gives to a group."""
    return group.min_workers, group.max_workers


def limits(settings: LiveSettings, group: ScalingGroup) -> Limits:
    """The limits that hold for a group now.

    Raises:
        UsageError: the running cluster does not have the group in this form yet.
    """
    found = entries(settings).get(group.name)
    if found is not None and not group.is_autoscaled():
        return found.size
    if not group.is_autoscaled():
        return of_file(group)
    types = {} if settings.autoscaler is None else settings.autoscaler["available_node_types"]
    kind = types.get(group.node_types()[0])
    if kind is None:
        raise UsageError(
            f"the running cluster has no autoscaled group {group.name!r} yet: the stack file was "
            "edited since; run `sunspot up` first"
        )
    return kind["min_workers"], kind["max_workers"]


def file_limits(settings: LiveSettings, group: ScalingGroup) -> Limits:
    """The limits that the file gave to a group of the running cluster."""
    found = entries(settings).get(group.name)
    return limits(settings, group) if found is None else found.file


def sizes(settings: LiveSettings, groups: Iterable[ScalingGroup]) -> dict[str, Size]:
    """The size of each group that was given one by hand; a range where Ray's autoscaler runs."""
    found = entries(settings)
    return {
        group.name: _size(found[group.name].size, group) for group in groups if group.name in found
    }


def _size(given: Limits, group: ScalingGroup) -> Size:
    low, high = given
    return Size(minimum=low, maximum=high if group.is_autoscaled() else None)


def wanted(now: Limits, group: ScalingGroup, size: Size) -> Limits:
    """The limits that a size means for a group with these.

    A number becomes an autoscaled group's minimum, and its maximum if that is lower. A fixed group
    gets the number of a range that is nearest to the one that it has.
    """
    if not group.is_autoscaled():
        count = size.nearest(now[1])
        return count, count
    return size.minimum, size.highest if size.maximum is not None else max(size.minimum, now[1])


def resized(
    settings: LiveSettings, group: ScalingGroup, given: Limits, *, nonce: str
) -> LiveSettings:
    """The settings once a group has these limits by hand."""
    made = ByHand(size=given, file=file_limits(settings, group), nonce=nonce)
    return _with(settings, group, made)


def restored(
    settings: LiveSettings, before: LiveSettings, groups: Iterable[ScalingGroup]
) -> LiveSettings:
    """The settings once these groups have again what they had before."""
    for group in groups:
        was = entries(before).get(group.name)
        if was is not None:
            settings = _with(settings, group, was)
            continue
        scaled = {name: one for name, one in settings.scaled.items() if name != group.name}
        settings = replace(_limited(settings, group, limits(before, group)), scaled=scaled)
    return settings


def carried(
    settings: LiveSettings, running: LiveSettings | None, groups: Iterable[ScalingGroup]
) -> LiveSettings:
    """The file's settings with what was given by hand, for groups whose size was not edited since.

    Args:
        settings: what the stack file says.
        running: the settings of the cluster; None if there is none yet.
        groups: the groups of the file.
    """
    for group, given in _kept(running, groups):
        settings = _with(settings, group, given)
    return settings


def count(group: ScalingGroup, running: LiveSettings | None) -> int:
    """How many workers an update gives to a fixed group."""
    kept = [given.size[0] for _, given in _kept(running, [group])]
    return kept[0] if kept else group.min_workers


def told(running: LiveSettings, groups: Iterable[ScalingGroup], stack: str) -> list[str]:
    """What an update makes of each size that was given by hand, and how to have the other one."""
    lines: list[str] = []
    found, file = entries(running), f"Pulumi.{stack}.yaml"
    for group in groups:
        given, declared = found.get(group.name), of_file(group)
        if given is None or given.size == declared:
            continue
        now, wrote = _size(given.size, group), _size(declared, group)
        if given.file == declared:
            keys = f"min_workers: {given.size[0]}, max_workers: {given.size[1]}"
            lines.append(
                f"group {group.name!r} was scaled by hand to {now}, and keeps it; {file} says "
                f"{wrote}. To have the file say so too, write {keys}; to go back: "
                f"sunspot scale {stack} {group.name}={wrote}"
            )
        else:
            lines.append(
                f"group {group.name!r} was scaled by hand to {now}; {file} was edited since, so it "
                f"gets the file's {wrote}. To have the other: sunspot scale {stack} "
                f"{group.name}={now}"
            )
    return lines


def left_out(running: LiveSettings, node_types: Collection[str]) -> list[str]:
    """The node types that the cluster may have workers of, and an update leaves out undrained.

    Args:
        running: the settings of the cluster.
        node_types: those of the stack file, and the head's.
    """
    empty = {name for name, given in entries(running).items() if given.size[1] == 0}
    if running.autoscaler is not None:
        types = running.autoscaler["available_node_types"].items()
        empty |= {name for name, kind in types if kind["max_workers"] == 0}
    known = running.prices.keys() | running.elastic_types()
    return sorted(known - empty - {*node_types, *running.leaving})


def _kept(
    running: LiveSettings | None, groups: Iterable[ScalingGroup]
) -> Iterator[tuple[ScalingGroup, ByHand]]:
    found = {} if running is None else entries(running)
    for group in groups:
        given = found.get(group.name)
        if given is not None and given.file == of_file(group):
            yield group, given


def _with(settings: LiveSettings, group: ScalingGroup, given: ByHand) -> LiveSettings:
    scaled = {**settings.scaled, group.name: given.plain()}
    return replace(_limited(settings, group, given.size), scaled=scaled)


def _limited(settings: LiveSettings, group: ScalingGroup, given: Limits) -> LiveSettings:
    """The settings with these limits in the autoscaler's config, if it has the group."""
    if not group.is_autoscaled() or settings.autoscaler is None:
        return settings
    config: Any = copy.deepcopy(dict(settings.autoscaler))
    types: dict[str, Any] = config["available_node_types"]
    first, *_ = names = group.node_types()
    types[first]["min_workers"] = given[0]
    for name in names:
        types[name]["max_workers"] = config["provider"]["maximums"][name] = given[1]
    config["max_workers"] = sum(kind["max_workers"] for kind in types.values())
    return replace(settings, autoscaler=config)
