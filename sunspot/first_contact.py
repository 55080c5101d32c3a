"""What `sunspot doctor --first-contact` shows."""

from __future__ import annotations

import os
from pathlib import Path

from rich.console import Console
from rich.markup import escape

from sunspot.console import filled
from sunspot.doctor import Diagnosis, show_finding
from sunspot.errors import UsageError
from sunspot.targets.contacting import Contact, ContactReport, Outcome
from sunspot.targets.protocol import Progress

STYLES: dict[Outcome, str] = {"ok": "green", "failed": "bold red", "not tried": "yellow"}
INDENT = " " * 11


def check_report(file: Path) -> None:
    """Checks that a report can be written.

    Raises:
        UsageError: the file's folder does not exist or is not writable, or the file is a folder.
    """
    folder = file.absolute().parent
    if file.is_dir():
        raise UsageError(f"--report {file} is a folder: name a file in it")
    if not folder.is_dir():
        raise UsageError(f"--report {file}: there is no folder {folder}: create it first")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise UsageError(f"--report {file}: you may not write in {folder}: name another folder")


def findings(contact: Contact, target: str, progress: Progress) -> Diagnosis:
    """The preconditions of the small cluster, as `sunspot doctor` has them."""
    return Diagnosis(stack=contact.name, target=target, findings=contact.findings(progress))


def show_findings(diagnosis: Diagnosis, console: Console) -> None:
    """Prints what is not ok, which is all that a person has to look at."""
    for finding in diagnosis.findings:
        if finding.level != "ok":
            show_finding(finding, console, longest=len(finding.check))


def show(report: ContactReport, console: Console) -> None:
    """Prints each step with its outcome, its seconds and, below it, what was seen."""
    for trial in report.trials:
        style = STYLES[trial.outcome]
        seconds = f"{trial.seconds:.0f} s" if trial.outcome != "not tried" else ""
        heading = f"{escape(trial.step)}  [dim]{seconds}[/]" if seconds else escape(trial.step)
        console.print(f"[{style}]{trial.outcome:<9}[/]  {heading}")
        text = filled(trial.detail, console.width, first=INDENT, rest=INDENT)
        console.print(text, style="dim", markup=False)
    console.print(_verdict(report))


def failed(report: ContactReport) -> int:
    """How many steps failed."""
    return sum(trial.outcome == "failed" for trial in report.trials)


def _verdict(report: ContactReport) -> str:
    counts = [
        f"{count} {outcome}"
        for outcome in STYLES
        if (count := sum(trial.outcome == outcome for trial in report.trials))
    ]
    return f"[bold]first contact[/]: {', '.join(counts)}"
