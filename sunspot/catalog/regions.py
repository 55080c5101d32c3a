"""Which of Azure's regions sell a size, and at what price, as far as is known.

The table is `regions.csv` beside this file; its header says where it comes from. It may be out of
date: a region may sell a size by now that the table does not list there.
"""

import difflib
from collections.abc import Mapping
from functools import cache
from importlib import resources
from types import MappingProxyType

UNCLEAR = "?"

# How alike the names are: uksuth and uksouth, but not two regions of different names.
ALIKE = 0.8


def is_sold(size: str, region: str) -> bool | None:
    """Whether the list has the size (by its full name) in the region; None if it does not say."""
    sold = _row(size)
    if region not in known() or not sold:
        return None
    return region in sold


def sold_in(size: str) -> tuple[str, ...]:
    """The regions that have the size, sorted; empty if the list does not contain the size."""
    return tuple(_row(size))


def on_demand(size: str, region: str) -> float | None:
    """What a size costs in a region, in USD an hour; None if the list does not say."""
    text = _row(size).get(region, UNCLEAR)
    return None if text == UNCLEAR else float(text)


def known() -> tuple[str, ...]:
    """The regions that the list covers, sorted."""
    columns = next(line for line in _lines() if line.startswith("size,"))
    return tuple(columns.split(",")[1:])


def near(region: str) -> str | None:
    """The region that an unknown name is likely a slip of; None of a known name, or if none is."""
    alike = difflib.get_close_matches(region, known(), 1, ALIKE)
    return alike[0] if alike and region not in known() else None


def date() -> str:
    """The list's date (ISO)."""
    notes = (line[1:].partition(": ") for line in _lines() if line.startswith("#"))
    return next(text for key, _, text in notes if key.strip() == "date")


@cache
def _lines() -> tuple[str, ...]:
    text = resources.files("sunspot.catalog").joinpath("regions.csv").read_text(encoding="utf-8")
    return tuple(text.splitlines())


@cache
def _row(size: str) -> Mapping[str, str]:
    """The size's price by region, as written; empty if the list does not contain the size."""
    found = next((line for line in _lines() if line.startswith(f"{size},")), None)
    if found is None:
        return MappingProxyType({})
    prices = zip(known(), found.split(",")[1:], strict=True)
    return MappingProxyType({region: price for region, price in prices if price})
