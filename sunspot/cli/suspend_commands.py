"""Commands that suspend a cluster, bring it back, or keep it though it is idle."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from sunspot import console
from sunspot.cli.base import Commands, UpStack, UpTarget, print_handle
from sunspot.errors import NotUpError, UsageError
from sunspot.targets import abilities, clusters
from sunspot.targets.idling import Idling, duration
from sunspot.targets.suspending import Suspending

commands = Commands()


@commands.command(epilog="Example: sunspot suspend dev")
def suspend(stack: UpStack = None, target_name: UpTarget = None) -> None:
    """End a cluster's nodes, but keep its state: `sunspot start` brings the same cluster back.

    Running jobs are stopped. What was scaled by hand, and the records of jobs, stay.
    """
    target, name = _cluster(stack, target_name, "there is nothing to suspend")
    suspending = abilities.need(target, Suspending)
    with console.progress(f"suspending {name}") as progress:
        notes = suspending.suspend(name, progress)
    console.out.print(f"[bold]{name}[/] is suspended")
    for text in notes:
        console.note(text)
    console.note(f"bring it back: sunspot start {name} · remove it: sunspot down {name}")


@commands.command(epilog="Example: sunspot start dev")
def start(stack: UpStack = None, target_name: UpTarget = None) -> None:
    """Bring a suspended cluster back: the same cluster, at the same addresses if they are free."""
    target, name = _cluster(stack, target_name, "there is nothing to start again")
    suspending = abilities.need(target, Suspending)
    with console.progress(f"starting {name}") as progress:
        started = suspending.start(name, progress)
    console.out.print(f"[bold]{name}[/] is up ({started.handle.target})")
    for text in started.notes:
        console.warn(text)
    print_handle(started.handle)


@commands.command(
    "keep-alive",
    epilog="Example: sunspot keep-alive 2h\nExample: sunspot keep-alive dev 1h30m",
)
def keep_alive(
    given: Annotated[
        list[str],
        typer.Argument(
            metavar="[STACK] DURATION",
            help="For how long: a number with s, m, h or d; 0 ends what was said before.",
            show_default=False,
        ),
    ],
    target_name: UpTarget = None,
) -> None:
    """Keep a cluster that would be stopped as idle (sunspot:idle); it ends by itself."""
    if len(given) > 2:
        raise UsageError(f"give a stack and a duration, not {len(given)} words: {' '.join(given)}")
    seconds = duration(given[-1])
    target, name = _cluster(given[0] if given[1:] else None, target_name, "nothing to keep")
    until = abilities.need(target, Idling).keep_alive(name, seconds)
    if seconds > 0:
        at = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(until))
        console.out.print(f"[bold]{name}[/] is kept until {at}, idle or not")
    else:
        console.out.print(f"[bold]{name}[/] is not kept any longer: its stack's policy holds")


def _cluster(stack: str | None, target_name: str | None, so: str) -> clusters.Cluster:
    """The cluster that a command is about.

    Raises:
        UsageError: there is none; the message says `so`.
    """
    try:
        return clusters.find(stack, target_name)
    except NotUpError as error:
        raise UsageError(f"{so}: {error}") from error
