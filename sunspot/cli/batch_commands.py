"""The command that brings a cluster up for one command."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from sunspot import console
from sunspot import stack as stacks
from sunspot.cli.base import AfterDashes, Commands, NewStack
from sunspot.errors import UsageError
from sunspot.targets import abilities, clusters
from sunspot.targets.protocol import Batches

commands = Commands()


@commands.command(
    cls=AfterDashes, epilog="Example: sunspot run dev --target slurm -- python workloads/primes.py"
)
def run(
    context: typer.Context,
    stack: NewStack,
    target_name: Annotated[
        str | None,
        typer.Option("--target", help="Target to use instead of the stack's own, such as slurm."),
    ] = None,
    detach: Annotated[
        bool, typer.Option("--detach", "-d", help="Do not wait for the command's end.")
    ] = False,
) -> None:
    """Bring a cluster up for the command after --, run it on the head, exit with its code.

    Nothing of the cluster is left then. Ctrl-C cancels it, unless --detach was given.
    """
    command = context.meta.get(AfterDashes.KEY, [])
    if not command:
        raise UsageError(
            f"there is no command after --, for instance: sunspot run {stack} -- python mine.py"
        )
    loaded = stacks.load(stack)
    target = clusters.get(target_name or loaded.target)
    batches = abilities.need(target, Batches)
    fitted = loaded.for_target(target.name)
    sys.exit(batches.run(fitted, command, sys.stdout, console.note, follow=not detach))
