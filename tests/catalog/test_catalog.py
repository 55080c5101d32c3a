"""The table of VM sizes, and what is chosen from it."""

import itertools
from datetime import date

import pytest

from sunspot import catalog
from sunspot.catalog import regions as catalog_regions
from sunspot.catalog import sizes
from sunspot.errors import UsageError


def test_every_row_makes_sense():
    for size in catalog.load():
        assert size.name.startswith("Standard_")
        assert size.vcpus > 0
        assert size.memory_gib > 0
        assert (size.gpu_count > 0) == (size.gpu_name is not None) == (size.gpu_memory_gib > 0)
        assert size.quota_family
        if size.price.spot is not None:
            assert size.price.on_demand is not None
            assert 0 < size.price.spot < size.price.on_demand


def test_header_gives_source_region_and_date():
    source = catalog.source()
    assert set(source) == {"shapes", "prices", "region", "currency", "date", "quota"}
    assert source["region"] == "eastus"
    assert "skypilot-catalog" in source["prices"]


def test_rows_as_published():
    size = catalog.get("Standard_NC64as_T4_v3")
    assert (size.vcpus, size.memory_gib, size.gpu_count, size.gpu_name) == (64, 440, 4, "T4")
    assert (size.gpu_memory_gib, size.temp_gib, size.price.on_demand) == (64, 2816, 4.352)
    assert not size.infiniband
    mi300x = catalog.get("Standard_ND96isr_MI300X_v5")
    assert (mi300x.gpu_count, mi300x.price) == (8, catalog.Price())
    assert mi300x.infiniband


@pytest.mark.parametrize(
    "name", ["Standard_D4s_v5", "standard_d4s_v5", "STANDARD_D4S_V5", "D4s_v5", "d4s_v5"]
)
def test_names_are_found_in_any_case_and_without_prefix(name):
    assert catalog.get(name).name == "Standard_D4s_v5"


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("Standard_NC4as_T4_v4", "did you mean Standard_NC4as_T4_v3"),
        ("ND96isr_H200_v5", "Standard_ND96isr_H100_v5"),
        ("zzz", "it knows Standard_D2s_v5, "),
        ("", "it knows"),
    ],
)
def test_unknown_names_get_the_closest(name, expected):
    with pytest.raises(UsageError) as caught:
        catalog.get(name)
    assert repr(name) in str(caught.value)
    assert expected in str(caught.value)


@pytest.mark.parametrize("name", ["Standard_NC6s_v3", "nc6s_v3"])
def test_retired_size_is_refused_with_its_successor(name):
    with pytest.raises(UsageError) as caught:
        catalog.get(name)
    for part in ("Standard_NC6s_v3", "2025-09-30", "Standard_NC24ads_A100_v4"):
        assert part in str(caught.value)
    assert all(size.name != "Standard_NC6s_v3" for size in catalog.load())


def test_successors_can_be_had():
    retired = [size for size in sizes._by_key().values() if size.retired]
    assert retired
    for size in retired:
        assert size.retired is not None
        assert size.successor is not None
        assert date.fromisoformat(size.retired)
        assert catalog.get(size.successor)


@pytest.mark.parametrize(
    ("needs", "name"),
    [
        ((2, 8), "Standard_D2s_v5"),
        ((0.5, 2), "Standard_D2s_v5"),
        ((2.5, 8), "Standard_D4s_v5"),
        ((4, 17), "Standard_E4s_v5"),
        ((8, 16), "Standard_F8s_v2"),
        ((8, 33), "Standard_E8s_v5"),
        ((1, 2, 1), "Standard_NC4as_T4_v3"),
        ((4, 29, 1), "Standard_NC8as_T4_v3"),
        ((1, 2, 2), "Standard_NC64as_T4_v3"),
        ((70, 2, 2), "Standard_NC80adis_H100_v5"),
        # A size without a price comes last, however much it has.
        ((1, 2, 8), "Standard_ND96isr_H100_v5"),
        # No size without GPUs is this large.
        ((24, 100), "Standard_NC24ads_A100_v4"),
    ],
)
def test_cheapest(needs, name):
    assert catalog.cheapest(*needs).name == name


def test_cheapest_is_the_cheapest_of_all_that_fit():
    needs = itertools.product((1, 4, 7, 16, 40, 96), (2, 16, 60, 400), (0, 1, 2, 4))
    for cpu, memory, gpus in needs:
        chosen = catalog.cheapest(cpu, memory, gpus)
        fits = [
            size
            for size in catalog.load()
            if size.vcpus >= cpu and size.memory_gib >= memory and size.gpu_count >= gpus
        ]
        without = [size for size in fits if size.gpu_count == 0]
        pool = without if gpus == 0 and without else fits
        assert chosen in pool
        prices = [size.price.on_demand for size in pool if size.price.on_demand is not None]
        assert chosen.price.on_demand == min(prices)


@pytest.mark.parametrize(
    ("needs", "expected"),
    [
        (
            (8, 16, 12),
            [
                "12 GPUs",
                "nearest is Standard_ND96isr_H100_v5: 96 vCPU, 1900 GiB, 8 GPUs",
                "short of 4 GPUs",
            ],
        ),
        ((2, 4000, 0), ["4000 GiB", "Standard_ND96isr_H100_v5", "short of 2100 GiB"]),
        ((97, 16, 0), ["97 vCPU", "Standard_NC96ads_A100_v4", "short of 1 vCPU"]),
        ((100, 16, 9), ["short of 4 vCPU and 1 GPU"]),
    ],
)
def test_needs_that_nothing_fits_name_the_nearest_and_the_gap(needs, expected):
    with pytest.raises(UsageError) as caught:
        catalog.cheapest(*needs)
    for part in expected:
        assert part in str(caught.value)


def test_the_list_of_regions_names_sizes_of_the_catalogue():
    everywhere = catalog_regions.sold_in(catalog_regions.EVERYWHERE)
    listed = {name: catalog_regions.sold_in(name) for name in catalog_regions._table()}
    del listed[catalog_regions.EVERYWHERE]
    assert set(listed) < {size.name for size in catalog.load()}
    for regions in listed.values():
        assert set(regions) <= set(everywhere)
        assert list(regions) == sorted(set(regions))
    assert date.fromisoformat(catalog_regions.date())


@pytest.mark.parametrize(
    ("size", "region", "sold"),
    [
        ("Standard_NC4as_T4_v3", "uksouth", True),
        ("Standard_NC4as_T4_v3", "ukwest", False),
        ("Standard_NC4as_T4_v3", "italynorth", None),
        ("Standard_ND96isr_MI300X_v5", "ukwest", None),
        ("Standard_D4s_v5", "ukwest", True),
    ],
)
def test_where_a_size_is_sold(size, region, sold):
    assert catalog_regions.is_sold(size, region) is sold
