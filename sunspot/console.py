"""Progress, notes and errors on stderr; results on stdout. No line is wrapped: it may be copied."""

from __future__ import annotations

import re
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console, ConsoleOptions, RenderableType
from rich.live import Live
from rich.markup import escape
from rich.segment import Segment
from rich.spinner import Spinner

from sunspot.targets.protocol import Lasting

REFRESH_HZ = 12.5

# What steers a terminal, but for the end of a line and the tab.
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


class _Printable(Console):
    """A console that shows what steers a terminal, instead of sending it there.

    Names, commands and messages come from clusters that others may use.
    """

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterator[Segment]:
        """What is printed; colours are not part of the text."""
        for segment in super().render(renderable, options):
            text, style, control = segment
            yield segment if control else Segment(_CONTROL.sub(_visible, text), style)


def _visible(found: re.Match[str]) -> str:
    return f"\\x{ord(found[0]):02x}"


err = _Printable(stderr=True, highlight=False, emoji=False, soft_wrap=True)
out = _Printable(highlight=False, emoji=False, soft_wrap=True)


def note(text: str) -> None:
    """Prints a line on stderr, for people and not for a pipe's reader."""
    err.print(escape(text), style="dim")


def warn(text: str) -> None:
    """Prints on stderr what a person must not miss, though nothing failed."""
    err.print(f"[bold yellow]note:[/] {escape(text)}")


def fail(text: str) -> None:
    """Prints an error as one message on stderr."""
    err.print(f"[bold red]error:[/] {escape(text)}")


def can_ask() -> bool:
    """Whether a person can answer a question: it is read from a terminal."""
    return sys.stdin is not None and sys.stdin.isatty()


def filled(text: str, width: int, *, first: str = "", rest: str = "") -> str:
    """The text in lines of `width` characters, except that what is in backticks is never broken.

    Args:
        text: one paragraph.
        width: characters of a line, the indents included.
        first: the indent of the first line.
        rest: the indent of the others.
    """
    held = re.sub(r"`[^`]*`", lambda command: command[0].replace(" ", "\0"), text)
    lines = textwrap.wrap(
        held,
        width,
        initial_indent=first,
        subsequent_indent=rest,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return "\n".join(lines).replace("\0", " ")


@contextmanager
def progress(title: str, *, redirect: bool = True) -> Iterator[Callable[[str], None]]:
    """A spinner with the latest step and the seconds so far; without a terminal, plain lines.

    Args:
        title: what is done.
        redirect: whether what is printed meanwhile goes above the spinner, for which sys.stdout and
            sys.stderr are replaced.

    Yields:
        The function to call with each step.
    """
    if not err.is_terminal:
        yield lambda step: err.print(escape(f"{title}: {step}"))
        return
    started, latest = time.monotonic(), ""
    spinner = Spinner("dots", style="status.spinner")

    def line() -> Spinner:
        """What each refresh shows, so that the seconds go on while a step takes long."""
        elapsed = f"{time.monotonic() - started:.0f} s"
        spinner.update(text=f"{escape(title)} [dim]{elapsed}{latest}[/]")
        return spinner

    with Live(
        spinner,
        get_renderable=line,
        console=err,
        transient=True,
        refresh_per_second=REFRESH_HZ,
        redirect_stdout=redirect,
        redirect_stderr=redirect,
    ):

        def show(step: str) -> None:
            if isinstance(step, Lasting):
                note(f"{title}: {step}")
                return
            nonlocal latest
            latest = f" · {escape(step)}"

        yield show
