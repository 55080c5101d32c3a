"""What the command refuses, and how its error begins: one list for every target."""

from __future__ import annotations

from dataclasses import dataclass

from sunspot.targets.protocol import NodeLogs
from sunspot.targets.scaling import Scaling


@dataclass(frozen=True)
class Refusal:
    """A command, its exit code, and the beginning of its error; PROJECT is the project's folder.

    A target without the `ability` that the command needs says that instead.
    """

    arguments: tuple[str, ...]
    code: int
    error: str
    ability: type | None = None

    def __str__(self) -> str:
        return " ".join(self.arguments)


NOTHING_UP = (
    Refusal(
        ("status",), 1, "no cluster is up; start it with: sunspot up STACK (here are one, two)"
    ),
    Refusal(("status", "one"), 1, "stack 'one' is not up; start it with: sunspot up one"),
    Refusal(("jobs", "--stack", "one"), 1, "stack 'one' is not up; start it with: sunspot up one"),
    Refusal(("ssh", "one"), 1, "stack 'one' is not up; start it with: sunspot up one"),
    Refusal(("status", "moon"), 1, "stack 'moon' is not up; start it with: sunspot up moon"),
    Refusal(("up", "moon"), 2, "There is no stack 'moon' in PROJECT: it has one, two"),
    Refusal(("up", "one", "--target", "moon"), 2, "there is no target 'moon'"),
)

ONE_IS_UP = (
    Refusal(("status", "two"), 1, "stack 'two' is not up (up: one); start it with: sunspot up two"),
    Refusal(("logs", "nothing"), 2, "there is no job 'nothing'; jobs: "),
    Refusal(("stop", "nothing"), 2, "there is no job 'nothing'; jobs: "),
    Refusal(("logs", "no/id"), 2, "'no/id' is not a job id: "),
    Refusal(
        ("logs", "--node", "nobody"), 2, "stack 'one' has no node 'nobody'; it has: ", NodeLogs
    ),
    Refusal(("scale", "moon=1"), 2, "stack 'one' has no group 'moon'; it has: ", Scaling),
    Refusal(("scale", "workers=3:1"), 2, "'workers=3:1': the minimum 3 is above the maximum 1"),
    Refusal(("scale", "workers=many"), 2, "'workers=many' is not of the form GROUP=N"),
    Refusal(
        ("submit", "--num-gpus", "8", "--", "true"), 2, "no node of this cluster can ever hold "
    ),
)
