"""What a stack needs before `sunspot up` can succeed: collected, as text and as plain data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rich.console import Console
from rich.markup import escape

from sunspot.stack import Stack
from sunspot.targets import abilities, clusters
from sunspot.targets.protocol import Finding, Level, Preconditions, Progress

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
    """Prints a line for each finding, with what mends it below, and a count at the end."""
    width = max((len(finding.check) for finding in diagnosis.findings), default=0)
    for finding in diagnosis.findings:
        show_finding(finding, console, width=width)
    console.print(
        f"[bold]{escape(diagnosis.stack)}[/] on {diagnosis.target}: {_verdict(diagnosis)}"
    )


def show_finding(finding: Finding, console: Console, *, width: int) -> None:
    """Prints one finding; `width` is the length of the longest check."""
    style = STYLES[finding.level]
    console.print(
        f"[{style}]{finding.level:<7}[/]  {escape(finding.check):<{width}}  "
        f"{escape(finding.detail)}"
    )
    if finding.remedy:
        console.print(f"{'':{width + 11}}{escape(finding.remedy)}", style="dim")


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
