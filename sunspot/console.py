"""What the command shows beside its results: progress, notes and errors, all on stderr."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.markup import escape

err = Console(stderr=True, highlight=False, soft_wrap=True)
out = Console(highlight=False)


def note(text: str) -> None:
    """A line for the person, which a pipe's reader does not get."""
    err.print(escape(text), style="dim")


def fail(text: str) -> None:
    """An error as one message."""
    err.print(f"[bold red]error:[/] {escape(text)}")


@contextmanager
def progress(title: str) -> Iterator[Callable[[str], None]]:
    """A spinner with the latest step and the seconds so far; plain lines where no terminal is.

    Yields the function to call with each step.
    """
    started = time.monotonic()
    if not err.is_terminal:
        yield lambda step: err.print(escape(f"{title}: {step}"))
        return
    with err.status(escape(title)) as status:

        def show(step: str) -> None:
            elapsed = time.monotonic() - started
            status.update(f"{escape(title)} [dim]{elapsed:.0f} s · {escape(step)}[/]")

        yield show
