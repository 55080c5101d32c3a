"""Commands that lead to the head: its dashboard, a shell, files."""

from __future__ import annotations

import shlex
import sys
from typing import Annotated, NoReturn

import typer

from sunspot import console
from sunspot.cli.base import AfterDashes, Commands, StackOption, UpStack, UpTarget
from sunspot.errors import SunspotError
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


@commands.command(cls=AfterDashes, epilog="Example: sunspot notebook dev -- --no-browser")
def notebook(
    context: typer.Context, stack: UpStack = None, target_name: UpTarget = None
) -> NoReturn:
    """Start JupyterLab on this machine; `ray.init()` in its notebooks finds the cluster.

    What stands after -- goes to JupyterLab. Ctrl-C ends JupyterLab, and leaves the cluster up.
    """
    from sunspot import notebooks

    notebooks.check_installed()
    target, name = clusters.find(stack, target_name)
    handle = target.handle(name, console.note)
    if handle.driver_address is None:
        raise SunspotError(
            f"no driver on this machine reaches {name!r}, so a notebook here cannot use it. Run "
            f"programs as jobs: sunspot submit --stack {name} -- python PROGRAM.py"
        )
    for kernel in notebooks.kernels_without_ray():
        console.warn(
            f"the kernel {kernel!r} has no Ray, so a notebook with it cannot use the cluster: "
            "choose another in JupyterLab"
        )
    console.note(f"in a notebook: import ray; ray.init()    # {name}, {handle.head_address}")
    sys.stderr.flush()
    notebooks.become_jupyter(context.meta.get(AfterDashes.KEY, []), handle.environment())


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
