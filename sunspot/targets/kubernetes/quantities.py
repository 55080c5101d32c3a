"""Kubernetes' amounts of CPU, memory and devices as numbers, and as people write them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from decimal import Decimal

# kubernetes.io, "Quantity".
_UNITS = {
    **{
        unit: Decimal(1024) ** power
        for power, unit in enumerate(("Ki", "Mi", "Gi", "Ti", "Pi", "Ei"), 1)
    },
    **{
        unit: Decimal(1000) ** power for power, unit in enumerate(("k", "M", "G", "T", "P", "E"), 1)
    },
    "n": Decimal("1e-9"),
    "u": Decimal("1e-6"),
    "m": Decimal("1e-3"),
    "": Decimal(1),
}
_FORM = re.compile(r"(?P<number>[+-]?[0-9.]+([eE][+-]?[0-9]+)?)(?P<unit>[A-Za-z]*)")

GIB = Decimal(2**30)

Amounts = Mapping[str, Decimal]


def number(text: str) -> Decimal:
    """A quantity as a number: "500m" is 0.5, "2Gi" is 2147483648."""
    found = _FORM.fullmatch(str(text).strip())
    if found is None or found["unit"] not in _UNITS:
        raise ValueError(f"{text!r} is not a quantity")
    return Decimal(found["number"]) * _UNITS[found["unit"]]


def amounts(given: Mapping[str, str]) -> dict[str, Decimal]:
    """Named quantities as numbers."""
    return {name: number(text) for name, text in given.items()}


def total(several: Iterable[Amounts]) -> dict[str, Decimal]:
    """The sums by name."""
    made: dict[str, Decimal] = {}
    for one in several:
        for name, amount in one.items():
            made[name] = made.get(name, Decimal(0)) + amount
    return made


def shown(name: str, amount: Decimal) -> str:
    """An amount for people: "3.5 CPUs", "12 GiB of memory", "1 nvidia.com/gpu"."""
    what = name.removeprefix("requests.").removeprefix("limits.")
    if what == "memory":
        return f"{_short(amount / GIB)} GiB of memory"
    return f"{_short(amount)} {'CPUs' if what == 'cpu' else name}"


def _short(amount: Decimal) -> str:
    return f"{float(round(amount, 2)):g}"
