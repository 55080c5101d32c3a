"""Commands about what happens to a cluster's nodes: their events, and an eviction on purpose."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Annotated

import typer

from sunspot import console
from sunspot.cli.base import Commands, UpStack, UpTarget
from sunspot.errors import NotUpError
from sunspot.node.events import Event
from sunspot.targets import abilities, clusters, history
from sunspot.targets.evicting import Evicting
from sunspot.targets.history import History
from sunspot.targets.ssh import UnreachableError

commands = Commands()

FOLLOW_POLL_S = 0.5
# A head elsewhere takes longer to ask, and is asked less often: the pause is so many answers long.
FOLLOW_PAUSES = 4


@commands.command(epilog="Example: sunspot events dev -f")
def events(
    stack: UpStack = None,
    target_name: UpTarget = None,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Follow them until the cluster is taken down.")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print a JSON object a line; its time is in UTC.")
    ] = False,
) -> None:
    """Show what happened to a cluster's nodes: when they came and went, and why.

    With -f, Ctrl-C stops the printing, but not the cluster.
    """
    target, name = clusters.find(stack, target_name)
    record = abilities.need(target, History)
    show = _as_json if as_json else history.line
    shown = _print(record, name, None, show)
    if shown is None and not follow:
        console.note(f"no events of {name!r} yet")
    took, answers = 0.0, True
    while follow:
        time.sleep(max(FOLLOW_POLL_S, took * FOLLOW_PAUSES))
        began = time.monotonic()
        try:
            shown = _print(record, name, shown, show)
            took, answers = time.monotonic() - began, True
        except NotUpError:
            console.note(f"{name!r} was taken down")
            return
        except UnreachableError as error:
            if answers:
                console.note(f"{error}; asking again")
            answers = False


@commands.command(epilog="Example: sunspot evict dev workers-0 --notice 30")
def evict(
    stack: Annotated[str, typer.Argument(metavar="STACK", help="The cluster's stack.")],
    node: Annotated[
        str, typer.Argument(metavar="NODE", help="A worker, as `sunspot status` names it.")
    ],
    target_name: UpTarget = None,
    notice: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS",
            help="From the notice to the node's end; 30 by default. On Azure it cannot be chosen.",
        ),
    ] = None,
) -> None:
    """Rehearse a spot eviction: a worker gets a notice, drains, and is taken away.

    On Azure the platform itself is asked for it, and evicts the machine within half an hour.
    """
    target, name = clusters.find(stack, target_name)
    evicting = abilities.need(target, Evicting)
    with console.progress(f"evicting {node}") as progress:
        told = evicting.evict(name, node, notice, progress)
    console.out.print(told, markup=False)
    if abilities.find(target, History):
        console.note(f"what comes next: sunspot events {name} -f")


def _print(
    record: History, name: str, shown: Event | None, show: Callable[[Event], str]
) -> Event | None:
    """Prints the events after the last one that was shown; returns the last one now."""
    new = _after(shown, record.recorded(name).events)
    for event in new:
        print(show(event), flush=True)
    return new[-1] if new else shown


def _after(last: Event | None, events: Sequence[Event]) -> Sequence[Event]:
    """The events after that one, which a head may meanwhile have added up with those before it."""
    if last is None:
        return events
    if last in events:
        return events[len(events) - events[::-1].index(last) :]
    return [event for event in events if event.time > last.time]


def _as_json(event: Event) -> str:
    when = datetime.fromtimestamp(event.time, UTC).isoformat(timespec="milliseconds")
    return json.dumps(event.plain() | {"time": when})
