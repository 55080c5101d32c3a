"""VM sizes and what they cost: from a catalogue file, or as the command line gives them."""

import csv
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

MARKETS = {"spot": "spot_usd", "on-demand": "on_demand_usd"}
"""The price column of the catalogue for each market."""

_GIVEN = re.compile(r"(?P<name>[^=]+)=(?P<vcpus>\d+):(?P<price>\d+(\.\d+)?)")


class SizeError(ValueError):
    """A VM size that is unknown, or that lacks what a comparison needs."""


@dataclass(frozen=True, kw_only=True)
class Size:
    """A VM size: its virtual CPUs, its GPUs, and USD an hour."""

    name: str
    vcpus: int
    gpus: int
    price: float

    @property
    def cpus_a_gpu(self) -> float:
        """How many CPUs feed one GPU, or one model where there is none."""
        return self.vcpus / max(1, self.gpus)

    def usd_a_million(self, rate: float) -> float:
        """Return what a million images cost where one GPU takes ``rate`` of them a second."""
        return self.price / (rate * max(1, self.gpus) * 3600) * 1_000_000


def sizes(text: str, catalog: Path, market: str) -> list[Size]:
    """Return the sizes of a list like ``NAME,NAME`` or, with prices, ``NAME=VCPUS:USD,...``.

    A size given with a price counts as having one GPU. The catalogue is read only if a name has no
    price.

    Raises:
        SizeError: If the catalogue lacks a name or its price, or the text has another form.
    """
    parts = [part.strip() for part in text.split(",") if part.strip()]
    if not parts:
        raise SizeError("--sizes lists no size: give NAME,NAME or NAME=VCPUS:USD,...")
    rows = _rows(catalog) if any("=" not in part for part in parts) else {}
    return [_given(part) if "=" in part else _known(part, rows, catalog, market) for part in parts]


def _given(part: str) -> Size:
    found = _GIVEN.fullmatch(part)
    if found is None or int(found["vcpus"]) < 1 or float(found["price"]) <= 0:
        raise SizeError(f"{part!r} is not NAME=VCPUS:USD, for example my_size=4:0.526")
    return Size(name=found["name"], vcpus=int(found["vcpus"]), gpus=1, price=float(found["price"]))


def _known(name: str, rows: Mapping[str, Mapping[str, str]], catalog: Path, market: str) -> Size:
    row = rows.get(name)
    if row is None:
        raise SizeError(f"{catalog} has no size {name!r}; give it as {name}=VCPUS:USD")
    price = row[MARKETS[market]]
    if not price:
        raise SizeError(f"{catalog} has no {market} price of {name}; give it as {name}=VCPUS:USD")
    return Size(name=name, vcpus=int(row["vcpus"]), gpus=int(row["gpu_count"]), price=float(price))


def _rows(catalog: Path) -> dict[str, Mapping[str, str]]:
    try:
        lines = catalog.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        hint = "Name it with --catalog, or give sizes as NAME=VCPUS:USD"
        raise SizeError(f"cannot read the catalogue {catalog}: {error.strerror}. {hint}") from None
    rows = list(csv.DictReader(line for line in lines if not line.startswith("#")))
    needed = {"name", "vcpus", "gpu_count", *MARKETS.values()}
    if not rows or not needed <= rows[0].keys():
        raise SizeError(
            f"{catalog} is not a catalogue: it needs the columns {', '.join(sorted(needed))}"
        )
    return {row["name"]: row for row in rows}
