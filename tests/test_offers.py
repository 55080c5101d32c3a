"""`sunspot sizes`: which sizes it lists, in which order, and what it refuses."""

import json

import pytest
from azure_model.price_list import D4, T4, price_list
from typer.testing import CliRunner

from sunspot import catalog, offers
from sunspot.catalog import prices, regions
from sunspot.cli.app import app
from sunspot.errors import UsageError


def run(*arguments):
    return CliRunner().invoke(app, ["sizes", *arguments])


def listed(*arguments):
    done = run(*arguments, "--json")
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def names(found):
    return [size["name"] for size in found["sizes"]]


def test_all_sizes_are_listed_the_cheapest_first():
    found = listed()
    assert set(names(found)) == {size.name for size in catalog.load()}
    known = [size["on_demand"] for size in found["sizes"] if size["on_demand"] is not None]
    assert known == sorted(known)
    assert [size["on_demand"] for size in found["sizes"]][: len(known)] == known
    assert found["region"] == catalog.source()["region"]


def test_one_kind_of_gpu_in_a_region():
    found = listed("--gpu", "t4", "--region", "uksouth")
    assert names(found)[0] == T4
    assert len(found["sizes"]) == 4
    first = found["sizes"][0]
    assert (first["gpu_name"], first["on_demand"]) == ("T4", regions.on_demand(T4, "uksouth"))
    assert first["spot"] is None  # known only where the catalogue's prices are from


def test_spot_prices_decide_the_order():
    spot = [size["spot"] for size in listed("--spot")["sizes"]]
    known = [usd for usd in spot if usd is not None]
    assert known == sorted(known)
    assert spot[: len(known)] == known
    assert None in spot


def test_a_region_lists_only_what_it_may_have():
    found = set(names(listed("--region", "ukwest")))
    assert D4 in found
    assert T4 not in found
    assert "Standard_D4as_v7" in found  # newer than the list


def test_as_a_table_with_where_the_prices_come_from():
    done = run("--gpu", "A100", "--spot")
    assert done.exit_code == 0
    rows = [line.split() for line in done.stdout.splitlines() if line.startswith("Standard_")]
    assert rows[0][:3] == ["Standard_NC24ads_A100_v4", "24", "220"]
    assert regions.date() in done.stdout
    assert "--refresh-prices" not in run("--gpu", "T4").stdout


@pytest.mark.parametrize("width", [40, 60, 80])
def test_no_cell_of_the_table_is_cut(width, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(width))
    for arguments in ([], ["--gpu", "A100"], ["--region", "uksouth", "--spot"]):
        text = run(*arguments).stdout
        assert "…" not in text
        rows = [line for line in text.splitlines() if line.startswith("Standard_")]
        assert len(rows) == len(listed(*arguments)["sizes"])
        if width >= 60:
            assert max(map(len, rows)) <= width


def test_a_column_that_is_left_out_is_named(monkeypatch):
    assert "No room for" not in run("--gpu", "A100").stdout
    monkeypatch.setenv("COLUMNS", "60")
    assert "No room for: temp GiB." in run("--gpu", "A100").stdout


def test_unknown_spot_prices_are_counted_in_either_order():
    for order in ([], ["--spot"]):
        assert "4 of them" in run("--gpu", "A100", "--region", "uksouth", *order).stdout


def test_sizes_that_a_stack_on_azure_may_not_have_are_named():
    note = " ".join(run("--gpu", "A10").stdout.partition("Not for")[2].split())
    assert "driver" in note
    assert "NV36ads_A10_v5" in note
    assert "Not for" not in run("--gpu", "T4").stdout


def test_prices_are_of_the_day_that_preview_names():
    day = catalog.source()["date"]
    assert listed("--gpu", "T4")["source"] == f"{prices.CATALOGUE}, {day}"
    assert regions.date() in listed("--gpu", "T4", "--region", "uksouth")["source"]


def test_todays_prices_are_asked_for(monkeypatch):
    with price_list() as served:
        monkeypatch.setenv(prices.URL_VARIABLE, served.url)
        found = listed("--gpu", "T4", "--region", "uksouth", "--spot", "--refresh-prices")
    first = found["sizes"][0]
    assert (first["name"], first["on_demand"], first["spot"]) == (T4, 0.6, 0.07)
    assert "Retail Prices" in found["source"]


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (["--gpu", "T5"], ["'T5'", "A100", "T4"]),
        (["--gpu", ""], ["''", "T4"]),
        (["--region", "uksout"], ["'uksout'", "uksouth", "--refresh-prices"]),
        (["--region", "UK South"], ["'UK South'", "uksouth"]),
        (["--region", "atlantis"], ["'atlantis'", "eastus", "--refresh-prices"]),
        (["--region", "a/b", "--refresh-prices"], ["'a/b'"]),
        (["--gpu", "T4", "--region", "ukwest"], ["ukwest", "T4", "uksouth", regions.date()]),
    ],
)
def test_bad_input_is_refused_with_what_would_fit(arguments, parts):
    done = run(*arguments)
    assert done.exit_code == 2
    for part in parts:
        assert part in done.output


def test_a_newer_region_may_be_asked_for(monkeypatch):
    with price_list() as served:
        monkeypatch.setenv(prices.URL_VARIABLE, served.url)
        found = offers.collect(gpu="T4", region="italynorth", refresh_prices=True)
    assert found.region == "italynorth"
    with pytest.raises(UsageError, match="italynorth"):
        offers.collect(region="italynorth")
