"""The command that finds what is missing before anything is created."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from sunspot import console
from sunspot import stack as stacks
from sunspot.cli.base import DEFAULT_STACK, AsJson, Commands, NewStack

commands = Commands()


@commands.command(epilog="Example: sunspot doctor hybrid")
def doctor(
    stack: NewStack = DEFAULT_STACK,
    target_name: Annotated[
        str | None,
        typer.Option("--target", help="Target to check instead of the stack's own, such as local."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Check what a stack needs before `up`, and say what mends each thing. Create nothing.

    Each line is ok, warning or failure.
    What could not be checked, such as without a login, is a warning that says so.
    The exit code is 1 if anything failed.
    """
    from sunspot import doctor as view

    loaded = stacks.load(stack)
    with console.progress(f"checking {stack}") as progress:
        found = view.collect(loaded, target_name, progress)
    if as_json:
        print(json.dumps(view.to_json(found), indent=2))
    else:
        view.show(found, console.out)
    if found.count("failure"):
        raise typer.Exit(1)
