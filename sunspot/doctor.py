"""What a stack needs before `sunspot up` can succeed: collected, as text and as plain data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.text import Text

from sunspot.console import filled
from sunspot.stack import Stack
from sunspot.targets import abilities, clusters
from sunspot.targets.protocol import Finding, Level, Preconditions, Progress

LEVEL_WIDTH = len("failure") + 2
LEAST_WIDTH = 30
"""The characters that a finding's text gets beside its name; otherwise it stands below."""

STYLES: dict[Level, str] = {"ok": "green", "warning": "yellow", "failure": "bold red"}


@dataclass(frozen=True, kw_only=True)
class Diagnosis:
    """What a target found of a stack's preconditions."""

    stack: str
    target: str
    findings: Sequence[Finding]

    def count(self, level: Level) -> int:
        """How many findings are of this level."""
        return sum(finding.level == level for finding in self.findings)


def collect(stack: Stack, target: str | None, progress: Progress) -> Diagnosis:
    """The preconditions of a stack.

    Args:
        stack: the stack as its file describes it.
        target: the target's name, by default the stack's own.
        progress: called with each step.

    Raises:
        UsageError: there is no such target, or it cannot check preconditions.
    """
    place = clusters.get(target or stack.target)
    found = abilities.need(place, Preconditions).preconditions(stack, progress)
    return Diagnosis(stack=stack.name, target=place.name, findings=found)


def show(diagnosis: Diagnosis, console: Console) -> None:
    """Prints a line for each finding, with what mends it below, and a count at the end.

    On a terminal a long finding is several lines; what mends it is one, to be copied.
    """
    longest = max((len(finding.check) for finding in diagnosis.findings), default=0)
    for finding in diagnosis.findings:
        show_finding(finding, console, longest=longest)
    console.print(
        f"[bold]{escape(diagnosis.stack)}[/] on {diagnosis.target}: {_verdict(diagnosis)}"
    )


def show_finding(finding: Finding, console: Console, *, longest: int) -> None:
    """Prints one finding; `longest` is the length of the longest check beside it."""
    narrow = console.is_terminal and console.width < LEVEL_WIDTH + longest + 2 + LEAST_WIDTH
    indent = LEVEL_WIDTH if narrow else LEVEL_WIDTH + longest + 2
    rest = " " * indent
    level = Text(f"{finding.level:<{LEVEL_WIDTH}}", style=STYLES[finding.level])
    detail = f"{rest}{finding.detail}"
    if console.is_terminal:
        detail = filled(finding.detail, console.width, first=rest, rest=rest)
    if narrow:
        console.print(level + finding.check)
        console.print(Text(detail))
    else:
        console.print(level + f"{finding.check:<{longest}}  " + detail[indent:])
    if finding.remedy:
        console.print(Text(f"{rest}{finding.remedy}", style="dim"))


def to_json(diagnosis: Diagnosis) -> dict[str, Any]:
    """The diagnosis as plain data."""
    return {
        "stack": diagnosis.stack,
        "target": diagnosis.target,
        "findings": [asdict(finding) for finding in diagnosis.findings],
    }


def _verdict(diagnosis: Diagnosis) -> str:
    counts = [
        f"{count} {level}{'s' if count > 1 else ''}"
        for level in ("failure", "warning")
        if (count := diagnosis.count(level))
    ]
    return ", ".join(counts) or "nothing is missing"
