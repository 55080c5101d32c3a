"""Commands that show a cluster to a person who watches it, and what ran on it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from sunspot import console
from sunspot.cli.base import Commands, UpStack, UpTarget
from sunspot.targets import clusters

commands = Commands()


@commands.command(epilog="Example: sunspot top dev --interval 5")
def top(
    stack: UpStack = None,
    target_name: UpTarget = None,
    interval: Annotated[
        float,
        typer.Option(min=0.5, max=3600, metavar="SECONDS", help="Between two pictures."),
    ] = 2.0,
) -> None:
    """Watch a cluster: what `status` shows and the latest events, drawn again and again.

    Ctrl-C ends the picture, but not the cluster.
    """
    from sunspot import top as view

    target, name = clusters.find(stack, target_name)
    view.watch(target, name, interval, console.out)
    console.note(f"{name!r} was taken down")


@commands.command(epilog="Example: sunspot report dev --job primes-3f9a1c")
def report(
    stack: UpStack = None,
    target_name: UpTarget = None,
    job_id: Annotated[
        str | None, typer.Option("--job", metavar="ID", help="Only the tasks of this job.")
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder for the report.")] = Path("sunspot-report"),
) -> None:
    """Write a page of what ran where: tasks over time by node, and nodes as they come and go."""
    from sunspot import cluster_report
    from sunspot import report as pages

    target, name = clusters.find(stack, target_name)
    pages.check_folder(out)
    with console.progress("asking Ray for its tasks") as progress:
        made = cluster_report.collect(target, name, job_id, progress)
    console.out.print(pages.table(made))
    console.out.print(f"report: [bold]{escape(str(pages.write(made, out)))}[/]")
