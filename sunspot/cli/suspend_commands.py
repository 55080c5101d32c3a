"""Commands that suspend a cluster and bring it back."""

from __future__ import annotations

from sunspot import console
from sunspot.cli.base import Commands, UpStack, UpTarget, print_handle
from sunspot.errors import NotUpError, UsageError
from sunspot.targets import abilities, clusters
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
        suspending.suspend(name, progress)
    console.out.print(f"[bold]{name}[/] is suspended")
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


def _cluster(stack: str | None, target_name: str | None, so: str) -> clusters.Cluster:
    """The cluster that a command is about.

    Raises:
        UsageError: there is none; the message says `so`.
    """
    try:
        return clusters.find(stack, target_name)
    except NotUpError as error:
        raise UsageError(f"{so}: {error}") from error
