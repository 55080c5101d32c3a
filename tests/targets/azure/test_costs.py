"""What a stack on Azure costs besides its machines, and what a cluster that is up costs now."""

import re

import pytest
from azure_model.price_list import T4
from preview_stacks import E4, KEY, ROOT, group, make, parse, section, shown

from sunspot.catalog import services
from sunspot.targets.azure import costs
from sunspot.targets.protocol import NodeStatus

FIXED = {"disks", "NAT gateway", "NAT traffic", "public addresses", "registry", "vault"}
REGISTRY = 5 / services.HOURS_A_MONTH


def others(*groups, **keys):
    return {other.name: other for other in make(*groups, **keys).costs.others}


def node(group, market="on-demand", state="up"):
    shape = {"cpus": 4, "gpus": 0, "memory_gb": 16}
    return NodeStatus(**{**shape, "name": group, "group": group, "market": market, "state": state})


def test_a_small_cluster_pays_for_its_disks_and_its_way_out():
    found = others()
    assert set(found) == FIXED
    assert found["disks"].minimum == pytest.approx(services.disk(64) + services.disk(32), abs=1e-5)
    assert found["public addresses"].minimum == 0.005
    assert found["NAT gateway"].maximum == 0.045
    assert "guessed" in found["NAT traffic"].guess


def test_what_is_switched_on_is_counted(tmp_path):
    (tmp_path / "Dockerfile").write_text("FROM scratch")
    found = others(
        access={
            "ssh_public_key": KEY,
            "public_ip": True,
            "ssh_cidrs": ["192.0.2.1/32"],
            "bastion": True,
        },
        image={"context": str(tmp_path)},
    )
    assert found["public addresses"].minimum == pytest.approx(3 * 0.005)
    assert found["Bastion"].minimum == 0.29
    assert found["registry"].minimum == pytest.approx(REGISTRY, abs=1e-5)


def test_workers_pay_for_disks_only_where_they_have_no_temporary_one():
    head = others()["disks"].minimum
    with_disk = others(group("d", min_workers=1, max_workers=3))["disks"]
    assert with_disk.minimum == pytest.approx(head + services.disk(64), abs=1e-5)
    assert with_disk.maximum == pytest.approx(head + 3 * services.disk(64), abs=1e-5)
    assert others(group("t", T4, max_workers=9))["disks"].maximum == head


def test_in_subnets_of_ones_own_there_is_no_nat():
    network = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Network/virtualNetworks/v"
    ids = {"head": f"{network}/subnets/a", "workers": f"{network}/subnets/b"}
    assert set(others(network={"subnet_ids": ids})) == {"disks", "vault", "registry"}


def test_traffic_grows_with_the_machines():
    traffic = others(group("a", min_workers=1, max_workers=9))["NAT traffic"]
    assert traffic.minimum == pytest.approx(2 * 0.045)
    assert traffic.maximum == pytest.approx(10 * 0.045)


def test_the_nodes_that_there_are_cost_what_they_were_bought_for():
    stack = parse(group("gpu", T4, market="spot-with-fallback", max_workers=4))
    nodes = [
        node("head"),
        node("gpu", "spot"),
        node("gpu-on-demand"),
        node("gpu", "spot", "lost"),
        node("gpu", "spot", "starting"),
    ]
    found = costs.now(stack, ROOT, nodes)
    assert found is not None
    assert found.machines == pytest.approx(0.192 + 0.063 + 0.526 + 0.063)
    assert found.others == pytest.approx(
        services.disk(64) + services.disk(32) + 0.005 + 0.045 + 4 * 0.045 + REGISTRY, abs=0.001
    )
    assert found.price_unknown == ()
    assert "eastus" in found.prices


def test_a_size_without_a_price_is_named():
    found = costs.now(parse(head="Standard_D4s_v6"), ROOT, [node("head")])
    assert found is not None
    assert (found.machines, found.price_unknown) == (0, ("Standard_D4s_v6",))


def test_a_stack_that_can_no_longer_be_planned_has_no_cost(tmp_path):
    gone = parse(image={"context": str(tmp_path / "gone")})
    assert costs.now(gone, ROOT, [node("head")]) is None


def test_no_machines_cost_nothing_at_an_unknown_price():
    text = section(shown(make(group("w", E4, min_workers=0, max_workers=2))), "Cost")
    assert re.search(r"w +0-2 x E4as_v6, spot +0\.000 +0\.000 +\? +0\.434", text)


def test_a_group_that_falls_back_may_be_all_on_demand():
    found = make(group("g", T4, market="spot-with-fallback", min_workers=1, max_workers=2))
    assert (found.costs.minimum, found.costs.maximum) == (0.192 + 0.063, 0.192 + 2 * 0.526)
    assert "1-2 x NC4as_T4_v3, spot, else on-demand" in shown(found, width=120)


def test_a_bastion_costs_too():
    access = {"ssh_public_key": KEY, "bastion": True}
    assert re.search(r"Bastion +0\.290 +0\.290", section(shown(make(access=access)), "Cost"))
