"""Why a group is not scaled by hand on Azure, and what to do instead."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NoReturn

from sunspot.errors import UsageError
from sunspot.spec import ScalingGroup
from sunspot.stack import Stack
from sunspot.targets import abilities
from sunspot.targets.scaling import Size


def refuse(stack: Stack, sizes: Mapping[str, Size]) -> NoReturn:
    """Refuses to give groups these sizes.

    Raises:
        UsageError: always; the message says for each group what sets its size.
    """
    groups = {name: abilities.group(stack, name) for name in sorted(sizes)}
    raise UsageError(
        "\n".join(_refusal(stack.name, groups[one], size) for one, size in sizes.items())
    )


def _refusal(name: str, group: ScalingGroup, size: Size) -> str:
    file = f"Pulumi.{name}.yaml"
    if group.is_autoscaled():
        keep = f"keep at least {size.minimum}, set its min_workers"
        if size.maximum is not None:
            keep = f"have {size}, set its min_workers and max_workers"
        return (
            f"on azure only Ray's autoscaler scales group {group.name!r}, between "
            f"{group.min_workers} and {group.max_workers} workers, by the load. To {keep} in "
            f"{file}, then run: sunspot up {name}"
        )
    return (
        f"group {group.name!r} is fixed: set its min_workers and max_workers to {size} in {file}, "
        f"then run: sunspot up {name}"
    )
