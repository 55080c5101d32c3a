"""The table of faults in docs/reliability.md: a row for each test, made from what held."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import astuple, dataclass
from pathlib import Path

import pytest

DOCUMENT = Path(__file__).parents[2] / "docs" / "reliability.md"
BEGIN, END = "<!-- faults: make faults ARGS=--write-table -->", "<!-- end of faults -->"

HEADINGS = ("What happens", "To", "Exit code", "What is said", "What is left")

NOTHING = "nothing"
AFTER_DOWN = "nothing after `sunspot down`"
AS_IT_WAS = "the cluster as it was"


@dataclass(frozen=True, kw_only=True, order=True)
class Row:
    """One fault that was tried, and what held each time.

    Attributes:
        fault: what happens.
        to: the command or process that it happens to.
        code: the exit codes that there were.
        says: a part of the sentence that was printed, or of what `sunspot status` says.
        left: what is there afterwards besides what was there before.
    """

    fault: str
    to: str
    code: str
    says: str
    left: str


ROWS = pytest.StashKey[list[Row]]()
"""Where a run keeps the rows of the tests that passed."""

WRITE = "--write-table"
"""The option that writes them into the document."""


def write(rows: Iterable[Row]) -> None:
    """Puts the rows in place of those in the document."""
    head, _, tail = _parts()
    DOCUMENT.write_text("\n".join([head + BEGIN, "", *lines(rows), "", END + tail]))


def committed() -> list[str]:
    """The lines of the table in the document."""
    return [line for line in _parts()[1].splitlines() if line]


def lines(rows: Iterable[Row]) -> list[str]:
    """The table of these rows, in Markdown."""
    return [_line(HEADINGS), _line(["---"] * len(HEADINGS)), *map(_line, map(astuple, rows))]


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _parts() -> tuple[str, str, str]:
    head, _, rest = DOCUMENT.read_text().partition(BEGIN)
    table, _, tail = rest.partition(END)
    return head, table, tail
