"""Prices from the catalogue, and from a loopback server that answers as Azure's price list does."""

import json
import re
import threading

import pytest
from azure_model.price_list import D4, ROWS, T4, price_list, row

from sunspot import catalog
from sunspot.catalog import Price, prices
from sunspot.errors import SunspotError


def ask(url, sizes, location):
    """What the price list at an address answers."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(prices.URL_VARIABLE, url)
        return prices.ask(sizes, location)


def test_only_linux_pay_as_you_go_hours_count():
    with price_list() as served:
        found = ask(served.url, [T4, D4], "uksouth")
    assert found.of(T4) == Price(on_demand=0.6, spot=0.07)
    assert found.of(D4) == Price(on_demand=0.22, spot=None)
    assert (found.region, found.source) == ("uksouth", "Azure Retail Prices API")
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", found.date)


def test_question_is_the_documented_one():
    with price_list() as served:
        ask(served.url, [T4, D4, T4], "uksouth")
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
        found = ask(served.url, [T4, D4], "uksouth")
    assert found.of(T4) == Price(on_demand=0.6, spot=0.07)
    assert found.of(D4).on_demand == 0.22
    assert len(served.asked) == -(-len(ROWS) // page_size)


def test_many_sizes_are_asked_in_several_questions():
    names = [f"Standard_X{number}" for number in range(40)]
    rows = [row(name, float(number + 1)) for number, name in enumerate(names)]
    with price_list(rows) as served:
        found = ask(served.url, names, "uksouth")
    assert len(served.asked) == 3
    assert [found.of(name).on_demand for name in names] == [float(n + 1) for n in range(40)]


def test_a_size_that_is_not_sold_there_has_no_price():
    with price_list() as served:
        found = ask(served.url, [T4], "westeurope")
    assert found.of(T4) == found.of("Standard_other") == Price()


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ((500, "{}"), "answered HTTP 500"),
        ((429, "{}"), "HTTP 429"),
        ((200, "<html>"), "something that is not JSON"),
        ((200, "[]"), "Items"),
        ((200, '{"Items": null}'), "Items"),
    ],
)
def test_an_answer_that_is_not_a_price_list_is_an_error(answer, message):
    with price_list() as served:
        served.answer = answer
        with pytest.raises(SunspotError, match=message) as caught:
            ask(served.url, [T4], "uksouth")
    assert caught.value.exit_code == 1
    assert served.url in str(caught.value)


def test_an_unreachable_price_list_says_what_to_do():
    with price_list() as served:
        url = served.url
    with pytest.raises(SunspotError, match=r"cannot reach .* leave --refresh-prices out"):
        ask(url, [T4], "uksouth")


def test_slow_answers_are_given_up(monkeypatch):
    monkeypatch.setattr(prices, "READ_TIMEOUT_S", 0.05)
    with price_list() as served:
        served.hold = threading.Event()
        try:
            with pytest.raises(SunspotError, match="did not answer in time"):
                ask(served.url, [T4], "uksouth")
        finally:
            served.hold.set()


def test_pages_without_end_are_given_up():
    with price_list() as served:
        served.answer = 200, json.dumps({"Items": [], "NextPageLink": served.url})
        with pytest.raises(SunspotError, match="does not end after 50 pages"):
            ask(served.url, [T4], "uksouth")


def test_the_catalogues_prices_say_where_they_are_from():
    found = prices.from_catalog()
    assert found.region == catalog.source()["region"]
    assert found.of(T4) == Price(on_demand=0.526, spot=0.063)
    assert found.of("Standard_ND96isr_MI300X_v5") == Price()
