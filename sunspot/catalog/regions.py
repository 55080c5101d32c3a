"""Which of Azure's regions sell a size, as far as is known.

The table is `regions.csv` beside this file; its header says where it comes from. It may be out of
date: a region may sell a size by now that the table does not list there.
"""

import csv
from functools import cache
from importlib import resources

EVERYWHERE = "*"


def is_sold(size: str, region: str) -> bool | None:
    """Whether the list has the size (by its full name) in the region; None if it does not say."""
    regions = sold_in(size)
    if region not in _table()[EVERYWHERE] or not regions:
        return None
    return region in regions


def sold_in(size: str) -> tuple[str, ...]:
    """The regions that have the size, sorted; empty if the list does not contain the size."""
    return _table().get(size, ())


def date() -> str:
    """The list's date (ISO)."""
    notes = (line[1:].partition(": ") for line in _lines() if line.startswith("#"))
    return next(text for key, _, text in notes if key.strip() == "date")


@cache
def _lines() -> tuple[str, ...]:
    text = resources.files("sunspot.catalog").joinpath("regions.csv").read_text(encoding="utf-8")
    return tuple(text.splitlines())


@cache
def _table() -> dict[str, tuple[str, ...]]:
    rows = csv.DictReader(line for line in _lines() if not line.startswith("#"))
    table = {row["size"]: tuple(row["regions"].split()) for row in rows}
    everywhere = table[EVERYWHERE]
    return {
        size: everywhere if regions == (EVERYWHERE,) else regions for size, regions in table.items()
    }
