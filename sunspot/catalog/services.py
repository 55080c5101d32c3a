"""What Azure asks for what is not a machine: disks, addresses, outbound access, registry, vault.

The table is `services.csv` beside this file; its header says where it comes from.
"""

from collections.abc import Mapping
from functools import cache
from importlib import resources
from types import MappingProxyType

HOURS_A_MONTH = 730


def usd(item: str) -> float:
    """USD of one unit of an item of the table; for what is billed by time, an hour of it.

    Raises:
        KeyError: there is no such item.
    """
    return _table()[item]


def disk(gib: int) -> float:
    """USD an hour of a Premium disk, which is billed as the next larger one of the table.

    Raises:
        ValueError: the table has none that large.
    """
    sizes = sorted(int(item.partition("-")[2]) for item in _table() if item.startswith("disk-"))
    fitting = [size for size in sizes if size >= gib]
    if not fitting:
        raise ValueError(f"no disk of {gib} GiB in the table: the largest has {sizes[-1]}")
    return usd(f"disk-{fitting[0]}")


@cache
def _table() -> Mapping[str, float]:
    text = resources.files("sunspot.catalog").joinpath("services.csv").read_text(encoding="utf-8")
    lines = (line.split(",") for line in text.splitlines() if not line.startswith("#"))
    next(lines)
    return MappingProxyType({item: _hourly(float(price), unit) for item, price, unit in lines})


def _hourly(price: float, unit: str) -> float:
    return price / HOURS_A_MONTH if unit == "month" else price
