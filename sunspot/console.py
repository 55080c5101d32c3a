"""Progress, notes and errors on stderr; results on stdout."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.markup import escape

err = Console(stderr=True, highlight=False, soft_wrap=True)
out = Console(highlight=False)


def note(text: str) -> None:
    """Prints a line on stderr, for people and not for a pipe's reader."""
    err.print(escape(text), style="dim")


def fail(text: str) -> None:
    """Prints an error as one message on stderr."""
    err.print(f"[bold red]error:[/] {escape(text)}")


@contextmanager
def progress(title: str) -> Iterator[Callable[[str], None]]:
    """A spinner with the latest step and the seconds so far; without a terminal, plain lines.

    Yields:
        The function to call with each step.
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
