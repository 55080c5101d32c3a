"""`sunspot preview aks`: what AKS makes of the shipped stack, its cost, reach and quota."""

import json

import pytest
from cli_runs import run

# Each quota, and the pools that need it.
QUOTA = {
    "standardDSv5Family": ["system", "head"],
    "Total Regional vCPUs": ["system", "head"],
    "Total Regional Spot vCPUs": ["gpu"],
}


@pytest.fixture
def found():
    done = run("preview", "aks", "--json")
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def test_the_cost_is_that_of_its_machines_and_what_is_beside_them(found):
    cost = found["cost"]
    for most in ("minimum", "maximum"):
        others = sum(one[most] for one in cost["others"])
        assert cost[most] == pytest.approx(cost["machines"][most] + others, abs=2e-3)
    assert 0 < cost["machines"]["minimum"] < cost["machines"]["maximum"]  # its GPUs scale to zero
    assert {one["group"] for one in cost["groups"]} == {"head", "system", "gpu"}


def test_the_quota_is_that_of_each_pool_when_it_is_full(found):
    assert {one["name"]: one["needed_by"] for one in found["quota"]} == QUOTA
    sizes = {one["name"]: one["vcpus"] for one in found["quota"]}
    assert (
        sizes["Total Regional vCPUs"] == 4 * 4
    )  # two for Kubernetes itself, the head's, and one after it
    assert sizes["Total Regional Spot vCPUs"] == 4 * 4


def test_the_text_says_who_may_connect_and_what_it_costs(found):
    text = " ".join(run("preview", "aks").stdout.split())
    for sentence in found["reach"]:
        assert sentence in text
    assert "no address yet" in found["reach"][0]  # the file lists none
    assert f"{found['cost']['minimum']:.3f} and {found['cost']['maximum']:.3f}" in text
    for name in QUOTA:
        assert name in text
