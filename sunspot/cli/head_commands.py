"""Commands that lead to the head: its dashboard, a shell, files."""

from __future__ import annotations

import shlex
import sys
from typing import Annotated

import typer

from sunspot import console
from sunspot.cli.base import AfterDashes, Commands, StackOption, UpStack, UpTarget
from sunspot.targets import abilities, clusters
from sunspot.targets.protocol import Shell, Shells

commands = Commands()


@commands.command(epilog="Example: sunspot dashboard --open")
def dashboard(
    stack: UpStack = None,
    target_name: UpTarget = None,
    open_browser: Annotated[bool, typer.Option("--open", help="Open it in the browser.")] = False,
) -> None:
    """Print the dashboard's address, how to print its token, and the address of Grafana."""
    target, name = clusters.find(stack, target_name)
    handle = target.handle(name, console.note)
    console.out.print(handle.job_address)
    console.note(
        "The dashboard asks for the cluster's token once and keeps it in a cookie. Print it with:\n"
        f"  cat {shlex.quote(str(handle.token_path))}"
    )
    for name, url in handle.monitoring.items():
        console.note(f"{name}: {url}")
    if open_browser:
        typer.launch(handle.job_address)


@commands.command(cls=AfterDashes, epilog="Example: sunspot ssh hybrid -- docker ps")
def ssh(context: typer.Context, stack: UpStack = None, target_name: UpTarget = None) -> None:
    """Open a shell on the head, or run the command after -- there and exit with its code."""
    sys.exit(_shell(stack, target_name).run(context.meta.get(AfterDashes.KEY, [])))


@commands.command(epilog="Example: sunspot rsync --stack hybrid head:results/ results/")
def rsync(
    source: Annotated[str, typer.Argument(metavar="SOURCE", help="What to copy.")],
    destination: Annotated[str, typer.Argument(metavar="DEST", help="Where to copy it.")],
    stack: StackOption = None,
    target_name: UpTarget = None,
) -> None:
    """Copy files to the head or from it; a path on the head is written head:PATH."""
    sys.exit(_shell(stack, target_name).copy(source, destination))


def _shell(stack: str | None, target_name: str | None) -> Shell:
    target, name = clusters.find(stack, target_name)
    return abilities.need(target, Shells).shell(name)
