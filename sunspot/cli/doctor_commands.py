"""The commands that find what is missing before anything is created, and what tests cannot show."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from sunspot import console
from sunspot import stack as stacks
from sunspot.cli import interrupts
from sunspot.cli.base import (
    DEFAULT_STACK,
    AsJson,
    Commands,
    Context,
    Namespace,
    NewStack,
    placed,
)
from sunspot.errors import UsageError
from sunspot.stack import Stack

commands = Commands()

REPORT = Path("first-contact.json")


@commands.command(
    epilog="Example: sunspot doctor hybrid\nExample: sunspot doctor --first-contact hybrid"
)
def doctor(
    stack: NewStack = DEFAULT_STACK,
    target_name: Annotated[
        str | None,
        typer.Option("--target", help="Target to check instead of the stack's own, such as local."),
    ] = None,
    context: Context = None,
    namespace: Namespace = None,
    as_json: AsJson = False,
    first_contact: Annotated[
        bool,
        typer.Option(
            "--first-contact",
            help="On Azure: make the smallest cluster, try what tests cannot show, take it away.",
        ),
    ] = False,
    yes: Annotated[
        bool, typer.Option("--yes", "-y", help="With --first-contact: agree to its price.")
    ] = False,
    report: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help=f"With --first-contact: the report; {REPORT} by default."
        ),
    ] = None,
) -> None:
    """Check what a stack needs before `up`, and say what mends each thing. Create nothing.

    Each line is ok, warning or failure.
    What could not be checked, such as without a login, is a warning that says so.
    The exit code is 1 if anything failed.

    Only --first-contact creates something, after it has shown the price and asked.
    Its report can be sent to the project: it has no names, addresses or keys of yours.
    """
    if first_contact:
        _first_contact(stacks.load(stack), target_name, yes, report or REPORT, as_json=as_json)
        return
    if yes or report is not None:
        raise UsageError("--yes and --report are only for --first-contact: add it")
    from sunspot import doctor as view
    from sunspot.targets import clusters
    from sunspot.targets.azure.aks import by_pulumi

    loaded = stacks.load(stack)
    if target_name is None and context is None:
        by_pulumi.refuse_doctor(loaded)
    loaded = placed(loaded, clusters.get(target_name or loaded.target), context, namespace)
    with console.progress(f"checking {stack}") as progress:
        found = view.collect(loaded, target_name, progress)
    if as_json:
        print(json.dumps(view.to_json(found), indent=2))
    else:
        view.show(found, console.out)
    if found.count("failure"):
        raise typer.Exit(1)


def _first_contact(
    stack: Stack, target_name: str | None, yes: bool, report: Path, *, as_json: bool
) -> None:
    from sunspot import doctor
    from sunspot import first_contact as view
    from sunspot.targets import abilities, clusters
    from sunspot.targets.contacting import Contacting

    place = clusters.get(target_name or stack.target)
    contacting = abilities.need(place, Contacting)
    view.check_report(report)
    with contacting.first_contact(stack) as contact:
        with console.progress(f"checking {contact.name}") as progress:
            ready = view.findings(contact, place.name, progress)
        view.show_findings(ready, console.err)
        if ready.count("failure"):
            if as_json:
                print(json.dumps(doctor.to_json(ready), indent=2))
            console.note("Nothing was created.")
            raise typer.Exit(1)
        if not _agreed(contact.cost(), yes):
            console.note("Nothing was created.")
            raise typer.Exit(1)
        with console.progress("first contact") as progress:
            made = contact.make(report, progress, console.note)
    if as_json:
        print(json.dumps(made.document, indent=2))
    else:
        view.show(made, console.out)
    if report.exists():
        console.note(f"The report is in {report}. Read it before you send it.")
    if made.remains:
        console.fail(made.remains)
    if made.interrupted:
        console.fail("interrupted")
        raise typer.Exit(interrupts.INTERRUPTED)
    if made.remains or view.failed(made):
        raise typer.Exit(1)


def _agreed(cost: str, yes: bool) -> bool:
    """Shows the price; whether the user agrees to it.

    Raises:
        UsageError: there is no terminal to ask at.
    """
    for line in cost.splitlines():
        console.err.print(console.filled(line, console.err.width), markup=False)
    if yes:
        return True
    if not console.can_ask():
        raise UsageError(
            "there is no terminal to ask at, so nothing was created: add --yes to agree to this"
        )
    try:
        return typer.confirm("Go on?", err=True)
    except typer.Abort:  # Ctrl-C, or the end of the input
        return False
