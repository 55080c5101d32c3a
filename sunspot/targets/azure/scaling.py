"""Why a group is not scaled by hand on Azure, and what to do instead."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NoReturn

from sunspot.errors import UsageError
from sunspot.spec import ScalingGroup
from sunspot.stack import Stack
from sunspot.targets import abilities


def refuse(stack: Stack, counts: Mapping[str, int]) -> NoReturn:
    """Refuses to give groups these numbers of workers.

    Raises:
        UsageError: always; the message says for each group what sets its number.
    """
    groups = {one.name: one for one in stack.cluster.scaling_groups}
    if unknown := counts.keys() - groups.keys():
        raise abilities.unknown(stack.name, "group", min(unknown), groups)
    raise UsageError(
        "\n".join(_refusal(stack.name, groups[one], count) for one, count in counts.items())
    )


def _refusal(name: str, group: ScalingGroup, count: int) -> str:
    file = f"Pulumi.{name}.yaml"
    if group.is_autoscaled():
        return (
            f"on azure only Ray's autoscaler scales group {group.name!r}, between "
            f"{group.min_workers} and {group.max_workers} workers, by the load. To keep at least "
            f"{count}, set its min_workers in {file}, then run: sunspot up {name}"
        )
    return (
        f"group {group.name!r} is fixed: set its min_workers and max_workers to {count} in {file}, "
        f"then run: sunspot up {name}"
    )
