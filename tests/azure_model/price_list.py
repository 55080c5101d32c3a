"""A loopback server that answers as Azure's Retail Prices API does."""

import re
import threading
from contextlib import contextmanager

from azure_model import http_service
from azure_model.http_service import Reply, Request

T4 = "Standard_NC4as_T4_v3"
D4 = "Standard_D4s_v5"


def row(size, price, suffix="", **fields):
    """A row as the documentation shows it."""
    name = size.removeprefix("Standard_").replace("_", " ") + suffix
    return {
        "currencyCode": "USD",
        "tierMinimumUnits": 0.0,
        "retailPrice": price,
        "unitPrice": price,
        "armRegionName": "uksouth",
        "location": "UK South",
        "effectiveStartDate": "2024-01-01T00:00:00Z",
        "meterId": "00000000-0000-0000-0000-000000000000",
        "meterName": name,
        "productId": "DZH318Z0000",
        "skuId": "DZH318Z0000/0000",
        "productName": "Virtual Machines Series",
        "skuName": name,
        "serviceName": "Virtual Machines",
        "serviceFamily": "Compute",
        "unitOfMeasure": "1 Hour",
        "type": "Consumption",
        "isPrimaryMeterRegion": True,
        "armSkuName": size,
        **fields,
    }


ROWS = [
    row(T4, 9.9, productName="Virtual Machines Series Windows"),
    row(T4, 9.8, " Spot", productName="Virtual Machines Series Windows"),
    row(T4, 0.6),
    row(T4, 0.3, " Low Priority"),
    row(T4, 0.07, " Spot"),
    row(D4, 1.7, unitOfMeasure="1 Month"),
    row(D4, 1.8, type="Reservation"),
    row(D4, 1.9, currencyCode="EUR"),
    row(D4, 0.0, " Spot"),
    row(D4, 0.22),
]


class PriceList:
    """A server that answers a filter with rows, some a page, and notes what it was asked."""

    def __init__(self, rows, page_size):
        self.rows, self.page_size = rows, page_size
        self.asked = []
        self.answer: tuple[int, str] | None = None  # status and body, instead of rows
        self.hold: threading.Event | None = None  # what to wait for before an answer
        self.url = ""

    def respond(self, request: Request) -> Reply:
        query = request.query
        self.asked.append(query)
        if self.hold is not None:
            self.hold.wait(30)
        if self.answer is not None:
            return Reply(*self.answer)
        # The documented filter, and values that are compared with their case.
        wanted = re.findall(r"armSkuName eq '([^']+)'", query["$filter"])
        region = re.findall(r"armRegionName eq '([^']+)'", query["$filter"])[0]
        found = [r for r in self.rows if r["armSkuName"] in wanted and r["armRegionName"] == region]
        skip = int(query.get("$skip", 0))
        rest = found[skip + self.page_size :]
        link = f"{self.url}?$filter={query['$filter']}&$skip={skip + self.page_size}"
        page = {
            "BillingCurrency": "USD",
            "CustomerEntityId": "Default",
            "CustomerEntityType": "Retail",
            "Items": found[skip : skip + self.page_size],
            "NextPageLink": link if rest else None,
            "Count": min(len(found) - skip, self.page_size),
        }
        return Reply(200, page)


@contextmanager
def price_list(rows=ROWS, page_size=1000):
    served = PriceList(rows, page_size)
    with http_service.serving(served.respond) as address:
        served.url = f"{address}/api/retail/prices"
        yield served
