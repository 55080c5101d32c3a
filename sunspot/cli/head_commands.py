"""Commands that lead to the head: its dashboard, a shell, files."""

from __future__ import annotations

import contextlib
import re
import shlex
import sys
import time
from collections.abc import Sequence
from typing import Annotated, NoReturn

import typer

from sunspot import console
from sunspot.cli.base import PORTS, AfterDashes, Commands, StackOption, UpStack, UpTarget
from sunspot.errors import SunspotError, UsageError
from sunspot.targets import abilities, clusters
from sunspot.targets.head_notebook import HeadNotebooks
from sunspot.targets.protocol import Shell, Shells, Target

commands = Commands()

# How often `forward` looks whether the way is still open.
FORWARD_POLL_S = 0.5


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
    context: typer.Context,
    stack: UpStack = None,
    target_name: UpTarget = None,
    here: Annotated[
        bool,
        typer.Option("--here", help="On this machine, also for a cluster on Azure."),
    ] = False,
) -> None:
    """Start JupyterLab beside the cluster; `ray.init()` in its notebooks finds it.

    For a cluster on Azure it runs on the head, which gets it at first use;
    otherwise on this machine. What stands after -- goes to JupyterLab.
    Ctrl-C (on this machine twice) ends it and leaves the cluster up.
    """
    target, name = clusters.find(stack, target_name)
    arguments = context.meta.get(AfterDashes.KEY, [])
    way = None if here else abilities.find(target, HeadNotebooks)
    if way is None:
        _notebook_here(target, name, arguments)
    else:
        _notebook_on_head(way, name, arguments)


def _notebook_on_head(way: HeadNotebooks, name: str, arguments: Sequence[str]) -> None:
    with contextlib.ExitStack() as stack:
        with console.progress("JupyterLab") as progress:
            found = stack.enter_context(way.notebook(name, arguments, progress))
        console.out.print(found.url)
        console.note(
            f"open that in a browser. It runs on the head of {name!r} until you press Ctrl-C; "
            f"notebooks are in {found.folder} there, and deleted with the cluster"
        )
        console.note("in a notebook: import ray; ray.init()")
        while found.is_open():
            time.sleep(FORWARD_POLL_S)
    console.note("JupyterLab has ended")


def _notebook_here(target: Target, name: str, arguments: Sequence[str]) -> NoReturn:
    from sunspot import notebooks

    notebooks.check_installed()
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
    notebooks.become_jupyter(arguments, handle.environment())


@commands.command(cls=AfterDashes, epilog="Example: sunspot ssh hybrid -- docker ps")
def ssh(context: typer.Context, stack: UpStack = None, target_name: UpTarget = None) -> None:
    """Open a shell on the head, or run the command after -- there and exit with its code."""
    sys.exit(_shell(stack, target_name).run(context.meta.get(AfterDashes.KEY, [])))


@commands.command(epilog="Example: sunspot forward hybrid 8000:9000")
def forward(
    stack: Annotated[str, typer.Argument(metavar="STACK", help="The cluster's stack.")],
    ports: Annotated[
        str,
        typer.Argument(
            metavar="PORT[:LOCAL]",
            help="A port on the head's loopback address, and the one that is to lead to it here: "
            "by default the same if it is free, or any.",
        ),
    ],
    target_name: UpTarget = None,
) -> None:
    """Reach a port of the head from this machine, and print its address here.

    Ctrl-C ends it, and leaves the cluster up.
    """
    from sunspot.targets.forwarding import Forwarding

    port, local = _ports(ports)
    target, name = clusters.find(stack, target_name)
    way = abilities.need(target, Forwarding)
    with way.forward(name, port, local, console.note) as found:
        console.out.print(f"http://127.0.0.1:{found.port}")
        if found.is_open is None:
            console.note(f"the head of {name!r} is this machine, so nothing has to lead there")
            return
        console.note(f"it leads to port {port} of the head of {name!r} until you press Ctrl-C")
        while found.is_open():
            time.sleep(FORWARD_POLL_S)
    raise SunspotError(
        f"the connection to the head of {name!r} has ended. To see what is wrong: sunspot status "
        f"{name}; then again: sunspot forward {name} {ports}"
    )


def _ports(text: str) -> tuple[int, int | None]:
    """The port on the head and the one here, of "8000" or "8000:9000"."""
    words = text.split(":")
    numbers = [int(word) for word in words if re.fullmatch("[0-9]{1,5}", word)]
    if len(numbers) != len(words) or len(words) > 2 or not all(n in PORTS for n in numbers):
        raise UsageError(
            f"{text!r} is not PORT or PORT:LOCAL, with numbers from {PORTS[0]} to {PORTS[-1]}, "
            "such as 8000:9000"
        )
    return numbers[0], numbers[1] if len(numbers) == 2 else None


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
