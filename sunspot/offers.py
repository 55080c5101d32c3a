"""Azure's VM sizes with their prices, as `sunspot sizes` lists them."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from sunspot import catalog
from sunspot.catalog import Price, VmSize, prices, regions
from sunspot.catalog.sizes import PREFIX
from sunspot.console import filled
from sunspot.errors import UsageError

UNKNOWN = "?"
WIDEST = 1000  # characters; no table is wider


@dataclass(frozen=True, kw_only=True)
class Offer:
    """A size and what a machine of it costs, in USD an hour."""

    size: VmSize
    price: Price


@dataclass(frozen=True, kw_only=True)
class Offers:
    """Sizes, the cheapest first and those without a known price last.

    Attributes:
        offers: the sizes.
        region: the region that the prices are for, as Azure calls it.
        source: where the prices come from, and of which day, as a phrase.
        spot: whether the spot price decides the order.
    """

    offers: tuple[Offer, ...]
    region: str
    source: str
    spot: bool


def collect(
    *,
    gpu: str | None = None,
    region: str | None = None,
    spot: bool = False,
    refresh_prices: bool = False,
) -> Offers:
    """The sizes that are offered.

    Args:
        gpu: the kind of GPU that they have, such as T4, in any case; by default any or none.
        region: where; by default the region of the catalogue's own prices. A size stays if it is
            not known whether the region has it.
        spot: whether to sort by the spot price instead of the on-demand one.
        refresh_prices: whether to ask Azure for today's prices.

    Raises:
        UsageError: no size has such a GPU, there or at all, or the region is not known.
        SunspotError: today's prices cannot be read.
    """
    home = catalog.source()["region"]
    where = _checked_region(region, home, any_name=refresh_prices)
    sizes = [size for size in _with_gpu(gpu) if regions.is_sold(size.name, where) is not False]
    if not sizes:
        raise UsageError(_not_there(_with_gpu(gpu), f"--gpu {gpu}", where))
    if refresh_prices:
        asked = prices.ask((size.name for size in sizes), where)
        offers = [Offer(size=size, price=asked.of(size.name)) for size in sizes]
        source = f"{asked.source}, {asked.date}"
    else:
        offers = [Offer(size=size, price=_price(size, where, home)) for size in sizes]
        source = f"{prices.CATALOGUE}, {_date(where, home)}"
    offers.sort(key=lambda offer: _order(offer, spot=spot))
    return Offers(offers=tuple(offers), region=where, source=source, spot=spot)


def show(found: Offers, console: Console) -> None:
    """Prints the sizes as a table that is as wide as the console, and where the prices come from.

    No cell is cut: columns that do not fit are left out, and a note names them.
    """
    columns, left_out = list(_COLUMNS), []
    table = _table(found, columns)
    while _width(table, console) > console.width and any(c.spare for c in columns):
        spare = min((column for column in columns if column.spare), key=lambda c: c.spare)
        columns.remove(spare)
        left_out.append(spare.name)
        table = _table(found, columns)
    table.width = _width(table, console)
    console.print(table, crop=False)
    for line in _notes(found, left_out):
        console.print(Text(filled(line, console.width), style="dim"), soft_wrap=True)


def to_json(found: Offers) -> dict[str, Any]:
    """The sizes as plain data; prices in USD an hour, None where one is unknown."""
    return {
        "region": found.region,
        "currency": "USD",
        "source": found.source,
        "sizes": [_plain(offer) for offer in found.offers],
    }


def _plain(offer: Offer) -> dict[str, Any]:
    size = offer.size
    return {
        "name": size.name,
        "vcpus": size.vcpus,
        "memory_gib": size.memory_gib,
        "gpu_count": size.gpu_count,
        "gpu_name": size.gpu_name,
        "gpu_memory_gib": size.gpu_memory_gib,
        "temp_gib": size.temp_gib,
        "infiniband": size.infiniband,
        "quota_family": size.quota_family,
        "on_demand": offer.price.on_demand,
        "spot": offer.price.spot,
    }


def _with_gpu(gpu: str | None) -> list[VmSize]:
    sizes = catalog.load()
    if gpu is None:
        return list(sizes)
    kinds = {size.gpu_name for size in sizes if size.gpu_name}
    found = [size for size in sizes if (size.gpu_name or "").lower() == gpu.strip().lower()]
    if not found or not gpu.strip():
        raise UsageError(
            f"--gpu {gpu!r}: no VM size has such a GPU: use {', '.join(sorted(kinds))}"
        )
    return found


def _checked_region(region: str | None, home: str, *, any_name: bool) -> str:
    known = regions.known()
    if region is None or region in known:
        return region or home
    short = region.replace(" ", "").lower()
    if any_name and region == short and region.isalnum():
        return region
    near = [short] if short in known else difflib.get_close_matches(short, known, n=3)
    if near:
        raise UsageError(
            f"--region {region!r} is not in the list of {regions.date()}: did you mean "
            f"{' or '.join(near)}? For a newer one, add --refresh-prices"
        )
    raise UsageError(
        f"--region {region!r} is not in the list of {regions.date()}: use one of "
        f"{', '.join(known)}; for a newer one, add --refresh-prices"
    )


def _not_there(sizes: list[VmSize], asked: str, region: str) -> str:
    there = sorted({name for size in sizes for name in regions.sold_in(size.name)})
    return (
        f"--region {region} has no size for {asked}, by Azure's prices of {regions.date()}: use "
        f"one of {', '.join(there)}"
    )


def _price(size: VmSize, region: str, home: str) -> Price:
    """The catalogue's price; the spot price is only known in its own region."""
    if region == home:
        return size.price
    return Price(on_demand=regions.on_demand(size.name, region))


def _date(region: str, home: str) -> str:
    return catalog.source()["date"] if region == home else f"on demand of {regions.date()}"


def _order(offer: Offer, *, spot: bool) -> tuple[bool, float, str]:
    usd = offer.price.spot if spot else offer.price.on_demand
    if usd is None:
        usd_then = offer.price.on_demand
        return True, usd_then if usd_then is not None else float("inf"), offer.size.name
    return False, usd, offer.size.name


def _usd(amount: float | None) -> str:
    return UNKNOWN if amount is None else f"{amount:.4g}"


@dataclass(frozen=True, kw_only=True)
class _Column:
    """A column of the table.

    Attributes:
        heading: in lines that are as short as what stands below.
        cell: its text for an offer.
        spare: the order, from 1, in which columns give way on a narrow terminal; 0: never.
    """

    heading: str
    cell: Callable[[Offer], str]
    spare: int = 0

    @property
    def name(self) -> str:
        """The heading in one line."""
        return self.heading.replace("\n", " ")


def _is_refused(size: VmSize) -> bool:
    return size.infiniband or size.needs_grid_driver


def _each(offer: Offer) -> str:
    size = offer.size
    return f"{size.gpu_memory_gib / size.gpu_count:g}" if size.gpu_count else ""


_COLUMNS = (
    _Column(heading="size", cell=lambda offer: offer.size.name),
    _Column(heading="vCPU", cell=lambda offer: str(offer.size.vcpus)),
    _Column(heading="GiB", cell=lambda offer: f"{offer.size.memory_gib:g}"),
    _Column(
        heading="GPUs",
        cell=lambda offer: (
            f"{offer.size.gpu_count} {offer.size.gpu_name}" if offer.size.gpu_name else ""
        ),
    ),
    _Column(heading="GiB\neach", cell=_each, spare=2),
    _Column(
        heading="temp\nGiB",
        cell=lambda offer: f"{offer.size.temp_gib:g}" if offer.size.temp_gib else "",
        spare=1,
    ),
    _Column(heading="on\ndemand", cell=lambda offer: _usd(offer.price.on_demand)),
    _Column(heading="spot", cell=lambda offer: _usd(offer.price.spot)),
)


def _table(found: Offers, columns: Sequence[_Column]) -> Table:
    table = Table(box=None, header_style="dim", pad_edge=False, padding=(0, 1, 0, 0))
    for column in columns:
        lines = column.heading.count("\n")
        table.add_column(
            "\n" * (1 - lines) + column.heading,
            justify="left" if column is columns[0] else "right",
            no_wrap=True,
        )
    for offer in found.offers:
        table.add_row(*(column.cell(offer) for column in columns))
    return table


def _width(table: Table, console: Console) -> int:
    return console.measure(table, options=console.options.update(width=WIDEST)).maximum


def _notes(found: Offers, left_out: Sequence[str]) -> list[str]:
    lines = [f"USD an hour in {found.region}, Linux. Prices: {found.source}."]
    if left_out:
        lines.append(f"No room for: {', '.join(left_out)}. A wider terminal, or --json, has them.")
    missing = [
        o for o in found.offers if (o.price.spot if found.spot else o.price.on_demand) is None
    ]
    if missing:
        kind = "spot" if found.spot else "on-demand"
        lines.append(
            f"{UNKNOWN} {len(missing)} of them without a known {kind} price come last; "
            "--refresh-prices asks Azure."
        )
    no_spot = [o for o in found.offers if o.price.spot is None and o not in missing]
    if no_spot and not found.spot:
        lines.append(
            f"{UNKNOWN} {len(no_spot)} of them have no known spot price; --refresh-prices asks "
            "Azure."
        )
    if refused := [o.size for o in found.offers if _is_refused(o.size)]:
        lines.append(
            "Not for machines on Azure yet, since they have InfiniBand or need another driver: "
            f"{', '.join(size.name.removeprefix(PREFIX) for size in refused)}."
        )
    if any(regions.is_sold(o.size.name, found.region) is None for o in found.offers):
        lines.append(
            f"Newer sizes are listed though {found.region} may not have them: `az vm list-skus "
            f"--location {found.region} --size NAME -o table` says so."
        )
    return lines
