"""What groups of machines cost an hour, above all where a price is not known."""

import pytest

from sunspot.catalog import Price, cost, services
from sunspot.catalog.prices import Prices

PRICES = Prices(
    region="uksouth",
    date="2026-01-01",
    source="a test",
    sizes={
        "both": Price(on_demand=0.5, spot=0.1),
        "no-spot": Price(on_demand=0.2),
        "only-spot": Price(spot=0.1),
    },
)


def costs(*groups):
    return cost.of(groups, PRICES)


def group(size, market, minimum, maximum):
    return cost.Group(name="g", size=size, market=market, minimum=minimum, maximum=maximum)


HEAD = group("no-spot", "on-demand", 1, 1)


def sums(found):
    return found.minimum, found.maximum


def named(found):
    return found.assumed, found.unknown


@pytest.mark.parametrize(
    ("market", "expected"),
    [
        ("on-demand", (0.5, 2.0)),
        ("spot", (0.1, 0.4)),
        ("spot-with-fallback", (0.1, 2.0)),  # all of it may be on-demand
    ],
)
def test_each_market_has_its_price(market, expected):
    found = costs(group("both", market, 1, 4))
    assert sums(found) == expected
    assert named(found) == ((), ())


def test_groups_are_added_up():
    assert sums(costs(HEAD, group("both", "spot", 0, 2))) == (0.2, 0.4)


@pytest.mark.parametrize(
    ("size", "market", "expected", "words"),
    [
        ("no-spot", "on-demand", (0.2, 0.4), ((), ())),
        ("no-spot", "spot", (0.2, 0.4), (("no-spot",), ())),
        ("no-spot", "spot-with-fallback", (0.2, 0.4), (("no-spot",), ())),
        ("only-spot", "on-demand", (0, 0), ((), ("only-spot",))),
        ("only-spot", "spot", (0.1, 0.2), ((), ())),
        ("only-spot", "spot-with-fallback", (0.1, 0), ((), ("only-spot",))),
        ("neither", "on-demand", (0, 0), ((), ("neither",))),
        ("neither", "spot", (0, 0), ((), ("neither",))),
        ("neither", "spot-with-fallback", (0, 0), ((), ("neither",))),
    ],
)
def test_what_is_unknown_is_assumed_or_left_out_and_named(size, market, expected, words):
    found = costs(group(size, market, 1, 2))
    assert sums(found) == expected
    assert named(found) == words


def test_a_size_is_named_once():
    found = costs(group("no-spot", "spot", 1, 1), group("no-spot", "spot-with-fallback", 1, 1))
    assert named(found) == (("no-spot",), ())


def test_one_market_can_be_asked_for():
    found = costs(HEAD)
    assert found.usd(HEAD, 3, spot=False) == pytest.approx(0.6)
    assert found.usd(HEAD, 3, spot=True) is None
    assert found.usd(HEAD, 0, spot=True) == 0


def test_as_plain_values():
    assert costs(group("no-spot", "spot", 0, 4), group("neither", "spot", 0, 1)).as_dict() == {
        "minimum": 0,
        "maximum": 0.8,
        "machines": {"minimum": 0, "maximum": 0.8},
        "others": [],
        "currency": "USD",
        "on_demand_price_taken_for": ["no-spot"],
        "price_unknown": ["neither"],
    }


def test_what_is_not_a_machine_is_in_the_total():
    others = [
        cost.Other(name="disks", minimum=0.1, maximum=0.3),
        cost.Other(name="traffic", minimum=0.01, maximum=0.02, guess="a guess"),
    ]
    found = cost.of([HEAD], PRICES, others)
    assert sums(found) == (0.2, 0.2)
    assert found.total() == (0.31, 0.52)
    plain = found.as_dict()
    assert (plain["minimum"], plain["maximum"]) == found.total()
    assert plain["machines"] == {"minimum": 0.2, "maximum": 0.2}
    assert plain["others"][1]["guess"] == "a guess"


@pytest.mark.parametrize(
    ("gib", "usd_a_month"), [(1, 5.28), (32, 5.28), (33, 10.56), (64, 10.56), (128, 19.71)]
)
def test_a_disk_is_billed_as_the_next_larger_one(gib, usd_a_month):
    assert services.disk(gib) * services.HOURS_A_MONTH == pytest.approx(usd_a_month)


def test_what_the_table_does_not_have():
    with pytest.raises(ValueError, match="129 GiB"):
        services.disk(129)
    with pytest.raises(KeyError, match="yacht"):
        services.usd("yacht")
