"""`sunspot top`: a cluster's status and its latest events, drawn again and again on a terminal."""

from __future__ import annotations

import io
import time
from datetime import datetime

from rich.console import Console
from rich.live import Live
from rich.text import Text

from sunspot import status
from sunspot.errors import UsageError
from sunspot.targets import history
from sunspot.targets.protocol import Target

SHOWN_EVENTS = 8


def watch(target: Target, name: str, interval_s: float, console: Console) -> None:
    """Draws the cluster until it is taken down, or until an interrupt.

    A head that does not answer is shown as such, and asked again.

    Args:
        target: the target that the cluster runs on.
        name: the stack's name.
        interval_s: the time between two pictures, in seconds.
        console: a terminal, all of which is used; what it showed comes back at the end.

    Raises:
        UsageError: `console` is not a terminal.
    """
    if not console.is_terminal:
        raise UsageError(
            f"`sunspot top` draws on a terminal, and this is not one. For a program: "
            f"sunspot status {name} --json"
        )
    with Live(console=console, screen=True, auto_refresh=False, vertical_overflow="crop") as live:
        while name in target.names():
            live.update(picture(target, name, console), refresh=True)
            time.sleep(interval_s)


def picture(target: Target, name: str, console: Console) -> Text:
    """The cluster as it is now, as wide as the console."""
    text = io.StringIO()
    drawn = Console(
        file=text,
        width=console.width,
        force_terminal=True,
        highlight=False,
    )
    drawn.print(f"[dim]{datetime.now().astimezone():%H:%M:%S} · Ctrl-C ends this picture only[/]")
    found = status.collect(target, name)
    status.show(found, drawn)
    if found.problem:
        drawn.print("does not answer:", style="red", end=" ")
        drawn.print(found.problem, markup=False)
    happened = found.past.events[-SHOWN_EVENTS:] if found.past else []
    events = [Text(history.line(event), style="dim") for event in happened]
    lines = Text.from_ansi(text.getvalue()).split(allow_blank=True)
    # The events stay where there are more nodes than lines.
    return Text("\n").join([*lines[: max(1, console.height - len(events) - 1)], *events])
