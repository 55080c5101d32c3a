"""Prices from the catalogue, and from a loopback server that answers as Azure's price list does."""

import json
import re
import threading
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

import pytest

from sunspot import catalog, prices
from sunspot.errors import SunspotError

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

    def respond(self, query) -> tuple[int, str]:
        self.asked.append(query)
        if self.hold is not None:
            self.hold.wait(30)
        if self.answer is not None:
            return self.answer
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
        return 200, json.dumps(page)


@contextmanager
def price_list(rows=ROWS, page_size=1000):
    served = PriceList(rows, page_size)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            query = {k: v[0] for k, v in parse_qs(urlsplit(self.path).query).items()}
            status, body = served.respond(query)
            with suppress(ConnectionError):  # whoever gave up waiting is gone
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body.encode())))
                self.end_headers()
                self.wfile.write(body.encode())

        def log_message(self, format, *args):  # noqa: A002 - its name there
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    served.url = f"http://127.0.0.1:{server.server_port}/api/retail/prices"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield served
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_only_linux_pay_as_you_go_hours_count():
    with price_list() as served:
        found = prices.ask([T4, D4], "uksouth", served.url)
    assert found.of(T4) == prices.Price(on_demand=0.6, spot=0.07)
    assert found.of(D4) == prices.Price(on_demand=0.22, spot=None)
    assert (found.region, found.source) == ("uksouth", "Azure Retail Prices API")
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", found.date)


def test_question_is_the_documented_one():
    with price_list() as served:
        prices.ask([T4, D4, T4], "uksouth", served.url)
    (query,) = served.asked
    assert query == {
        "api-version": "2023-01-01-preview",
        "currencyCode": "USD",
        "$filter": "serviceName eq 'Virtual Machines' and priceType eq 'Consumption' and "
        f"armRegionName eq 'uksouth' and (armSkuName eq '{D4}' or armSkuName eq '{T4}')",
    }


@pytest.mark.parametrize("page_size", [1, 2, 3, len(ROWS)])
def test_all_pages_are_read(page_size):
    with price_list(page_size=page_size) as served:
        found = prices.ask([T4, D4], "uksouth", served.url)
    assert found.of(T4) == prices.Price(on_demand=0.6, spot=0.07)
    assert found.of(D4).on_demand == 0.22
    assert len(served.asked) == -(-len(ROWS) // page_size)


def test_many_sizes_are_asked_in_several_questions():
    names = [f"Standard_X{number}" for number in range(40)]
    rows = [row(name, float(number + 1)) for number, name in enumerate(names)]
    with price_list(rows) as served:
        found = prices.ask(names, "uksouth", served.url)
    assert len(served.asked) == 3
    assert [found.of(name).on_demand for name in names] == [float(n + 1) for n in range(40)]


def test_a_size_that_is_not_sold_there_has_no_price():
    with price_list() as served:
        found = prices.ask([T4], "westeurope", served.url)
    assert found.of(T4) == found.of("Standard_other") == prices.Price()


def test_address_may_come_from_the_environment(monkeypatch):
    with price_list() as served:
        monkeypatch.setenv(prices.URL_VARIABLE, served.url)
        assert prices.ask([T4], "uksouth").of(T4).spot == 0.07


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ((500, "{}"), "answered HTTP 500"),
        ((429, "{}"), "HTTP 429: it is asked too often, wait"),
        ((200, "<html>"), "something that is no JSON"),
        ((200, "[]"), "unknown form, without Items"),
        ((200, '{"Items": null}'), "unknown form, without Items"),
    ],
)
def test_an_answer_that_is_none_says_what_came(answer, message):
    with price_list() as served:
        served.answer = answer
        with pytest.raises(SunspotError, match=message) as caught:
            prices.ask([T4], "uksouth", served.url)
    assert caught.value.exit_code == 1
    assert served.url in str(caught.value)


def test_offline_says_how_to_go_on():
    with price_list() as served:
        url = served.url
    with pytest.raises(SunspotError, match=r"cannot reach .* leave --refresh-prices out"):
        prices.ask([T4], "uksouth", url)


def test_slow_answers_are_given_up(monkeypatch):
    monkeypatch.setattr(prices, "READ_TIMEOUT_S", 0.05)
    with price_list() as served:
        served.hold = threading.Event()
        try:
            with pytest.raises(SunspotError, match="did not answer in time"):
                prices.ask([T4], "uksouth", served.url)
        finally:
            served.hold.set()


def test_pages_without_end_are_given_up():
    with price_list() as served:
        served.answer = 200, json.dumps({"Items": [], "NextPageLink": served.url})
        with pytest.raises(SunspotError, match="does not end after 50 pages"):
            prices.ask([T4], "uksouth", served.url)


def test_the_catalogues_prices_say_where_they_are_from():
    found = prices.from_catalog()
    assert found.region == catalog.source()["region"]
    assert found.of(T4) == prices.Price(on_demand=0.526, spot=0.063)
    assert found.of("Standard_ND96isr_MI300X_v5") == prices.Price()
