"""Today's prices of Azure's VM sizes, from the Azure Retail Prices API.

The API needs no account. Its answers are not stored.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from sunspot import catalog
from sunspot.catalog import Price
from sunspot.errors import SunspotError

DEFAULT_URL = "https://prices.azure.com/api/retail/prices"
URL_VARIABLE = "SUNSPOT_PRICES_URL"
API_VERSION = "2023-01-01-preview"
CURRENCY = "USD"
CATALOGUE = "Sunspot's catalogue"
HOUR = "1 Hour"

CONNECT_TIMEOUT_S = 10
READ_TIMEOUT_S = 30
# One region's rows for a few sizes fit in one page of 1000; this limit ends a loop of links.
MAX_PAGES = 50
# A filter is part of the URL, which servers limit to some thousand characters.
SIZES_PER_QUESTION = 15


@dataclass(frozen=True, kw_only=True)
class Prices:
    """Prices by size, and where they come from: `region` is Azure's name, `source` is a phrase."""

    region: str
    date: str
    source: str
    sizes: Mapping[str, Price]

    def of(self, size: str) -> Price:
        """The price of a size; a `Price` without numbers if the size is not in `sizes`."""
        return self.sizes.get(size, Price())


def from_catalog() -> Prices:
    """The prices that ship with Sunspot: from an earlier day, and maybe from another region."""
    source = catalog.source()
    return Prices(
        region=source["region"],
        date=source["date"],
        source=CATALOGUE,
        sizes={size.name: size.price for size in catalog.load()},
    )


def ask(sizes: Iterable[str], location: str) -> Prices:
    """Azure's prices today for Linux machines of these sizes in a region.

    The API's URL is Azure's own, or the value of the variable SUNSPOT_PRICES_URL. A size that is
    not in the answer has no price.

    Raises:
        SunspotError: there is no answer, or it is not a price list.
    """
    base = os.environ.get(URL_VARIABLE) or DEFAULT_URL
    names = sorted(set(sizes))
    found: dict[str, Price] = {}
    for start in range(0, len(names), SIZES_PER_QUESTION):
        asked = names[start : start + SIZES_PER_QUESTION]
        rows = [row for row in _rows(base, asked, location) if _is_linux_hour(row)]
        found |= {name: _price(name, rows, location) for name in asked}
    return Prices(
        region=location,
        date=datetime.now(UTC).date().isoformat(),
        source="Azure Retail Prices API",
        sizes=found,
    )


def _rows(base: str, sizes: list[str], location: str) -> Iterator[Mapping[str, Any]]:
    """The rows of all pages."""
    import requests  # a third of a second, which only `ask` needs

    url: str | None = base
    # The API compares these values case-sensitively.
    anyone = " or ".join(f"armSkuName eq '{name}'" for name in sizes)
    query: dict[str, str] | None = {
        "api-version": API_VERSION,
        "currencyCode": CURRENCY,
        "$filter": "serviceName eq 'Virtual Machines' and priceType eq 'Consumption' and "
        f"armRegionName eq '{location}' and ({anyone})",
    }
    with requests.Session() as session:
        for _ in range(MAX_PAGES):
            page = _page(session, url, query)
            yield from page["Items"]
            url, query = page.get("NextPageLink"), None  # the link contains the query
            if not url:
                return
    raise SunspotError(f"the price list at {base} does not end after {MAX_PAGES} pages")


def _page(session: Any, url: str | None, query: dict[str, str] | None) -> Mapping[str, Any]:
    import requests

    try:
        answer = session.get(url, params=query, timeout=(CONNECT_TIMEOUT_S, READ_TIMEOUT_S))
        answer.raise_for_status()
        page = answer.json()
    except requests.HTTPError as error:
        status = error.response.status_code
        hint = ": too many requests, wait a minute" if status == requests.codes.too_many else ""
        raise SunspotError(f"the price list at {url} answered HTTP {status}{hint}") from error
    except requests.JSONDecodeError as error:
        raise SunspotError(
            f"the price list at {url} answered something that is not JSON"
        ) from error
    except requests.Timeout as error:
        raise SunspotError(f"the price list at {url} did not answer in time: {_OFFLINE}") from error
    except requests.RequestException as error:
        raise SunspotError(f"cannot reach the price list at {url}: {_OFFLINE}") from error
    if not isinstance(page, dict) or not isinstance(page.get("Items"), list):
        raise SunspotError(f"the price list at {url} answered in an unknown format, without Items")
    return page


_OFFLINE = "leave --refresh-prices out to see the catalogue's prices"


def _is_linux_hour(row: Mapping[str, Any]) -> bool:
    return (
        "Windows" not in str(row.get("productName", ""))
        and "Low Priority" not in f"{row.get('skuName', '')} {row.get('meterName', '')}"
        and row.get("unitOfMeasure") == HOUR
        and row.get("currencyCode", CURRENCY) == CURRENCY
        and row.get("type", "Consumption") == "Consumption"
    )


def _price(size: str, rows: list[Mapping[str, Any]], location: str) -> Price:
    prices: dict[bool, list[float]] = {True: [], False: []}
    for row in rows:
        if row.get("armSkuName") != size or row.get("armRegionName", location) != location:
            continue
        amount = row.get("retailPrice")
        if isinstance(amount, int | float) and amount > 0:
            prices[str(row.get("skuName", "")).endswith(" Spot")].append(float(amount))
    # Several rows: a size with two product names. The higher price is the safer estimate.
    return Price(on_demand=max(prices[False], default=None), spot=max(prices[True], default=None))
