"""The command that prints what a target is given for a stack."""

from __future__ import annotations

from typing import Annotated

import typer

from sunspot import stack as stacks
from sunspot.cli.base import DEFAULT_STACK, Commands, NewStack
from sunspot.targets import abilities, clusters
from sunspot.targets.protocol import Manifests

commands = Commands()


@commands.command(epilog="Example: sunspot manifest dev --target slurm > dev.sh")
def manifest(
    stack: NewStack = DEFAULT_STACK,
    target_name: Annotated[
        str | None,
        typer.Option("--target", help="Target to use instead of the stack's own, such as slurm."),
    ] = None,
) -> None:
    """Print what the stack's target is given, which works without Sunspot too. Create nothing."""
    loaded = stacks.load(stack)
    target = clusters.get(target_name or loaded.target)
    print(abilities.need(target, Manifests).manifest(loaded.for_target(target.name)), end="")
