"""When a cluster counts as idle, and what happens then: the stack file's `sunspot:idle`."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from sunspot import registry
from sunspot.errors import UsageError
from sunspot.spec_values import Config, Number

KEY = "sunspot:idle"

Action = Literal["workers", "stop-head", "warn"]

WEEK_MINUTES = 7 * 24 * 60


class Idle(Config, frozen=True):
    """What happens to a cluster that nothing has used for a while.

    In use is a cluster with a job, a driver, a living actor, or an SSH session on its head; see
    sunspot/node/usage.py. `workers` removes the workers until the next use, `stop-head` suspends
    the cluster until `sunspot start`, and `warn` only says that it is idle.
    """

    after_minutes: Number = Field(
        default=60.0,
        gt=0,
        le=WEEK_MINUTES,
        description="for how many minutes nothing has used the cluster; fractions are accepted",
    )
    action: Action = Field(description="workers, stop-head or warn: what happens then")


def refuse_idle(given: Idle | None, target: str) -> None:
    """Refuses a policy for a target that does not look after idle clusters.

    Raises:
        UsageError: there is a policy, and the target does not follow one.
    """
    if given is not None and not registry.looks_after_idle(target):
        can = ", ".join(name for name in registry.names() if registry.looks_after_idle(name))
        raise UsageError(
            f"config > {KEY}: target {target!r} does not look after idle clusters; leave the key "
            f"out, or use one of the targets that do: {can}"
        )
