"""Prices from the catalogue, and from a loopback server that answers as Azure's price list does."""

import json
import re
import threading

import pytest
from azure_model.price_list import D4, ROWS, T4, price_list, row

from sunspot import catalog
from sunspot.catalog import Price, prices
from sunspot.errors import SunspotError


def test_only_linux_pay_as_you_go_hours_count():
    with price_list() as served:
        found = prices.ask([T4, D4], "uksouth", served.url)
    assert found.of(T4) == Price(on_demand=0.6, spot=0.07)
    assert found.of(D4) == Price(on_demand=0.22, spot=None)
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
    assert found.of(T4) == Price(on_demand=0.6, spot=0.07)
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
    assert found.of(T4) == found.of("Standard_other") == Price()


def test_address_may_come_from_the_environment(monkeypatch):
    with price_list() as served:
        monkeypatch.setenv(prices.URL_VARIABLE, served.url)
        assert prices.ask([T4], "uksouth").of(T4).spot == 0.07


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ((500, "{}"), "answered HTTP 500"),
        ((429, "{}"), "HTTP 429: it is asked too often, wait"),
        ((200, "<html>"), "something that is not JSON"),
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
    assert found.of(T4) == Price(on_demand=0.526, spot=0.063)
    assert found.of("Standard_ND96isr_MI300X_v5") == Price()
