"""What `sunspot preview` says of quota, and what it warns of."""

import pytest
from azure_model.price_list import T4
from preview_stacks import (
    D4,
    KEY,
    ROOT,
    group,
    make,
    parse,
    shown,
)

from sunspot.targets.azure import preview

_VNET = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Network/virtualNetworks/v"
OPEN = {"ssh_public_key": KEY, "bastion": True}
SUBNET_IDS = {"head": f"{_VNET}/subnets/a", "workers": f"{_VNET}/subnets/b"}


def quotas(*groups, **keys):
    return {q.name: (q.vcpus, q.needed_by) for q in make(*groups, **keys).quotas}


def test_quota_is_counted_with_all_groups_full():
    family = "Standard NCASv3_T4 Family"
    assert quotas(
        group("a", T4, max_workers=4),
        group("b", T4, market="on-demand", max_workers=2),
        group("c", T4, market="spot-with-fallback", max_workers=3),
    ) == {
        "standardDSv5Family": (4, ("head",)),
        family: (4 * 2 + 4 * 3, ("b", "c-on-demand")),
        "Total Regional vCPUs": (24, ("head", "b", "c-on-demand")),
        "Total Regional Spot vCPUs": (4 * 4 + 4 * 3, ("a", "c")),
    }


def test_without_spot_no_spot_quota():
    assert set(quotas()) == {"standardDSv5Family", "Total Regional vCPUs"}


def test_in_subnets_of_the_users_too_the_rules_let_nobody_in_unasked():
    (warning,) = make(network={"subnet_ids": SUBNET_IDS}).warnings
    assert "ssh_cidrs" in warning
    assert "bastion: true" not in warning  # which is only made in a network of the stack's own


def in_public(*blocks):
    access = {"ssh_public_key": KEY, "public_ip": True, "ssh_cidrs": list(blocks)}
    return make(access=access).warnings


@pytest.mark.parametrize("block", ["192.168.1.0/24", "203.0.113.7/32"])
def test_a_public_head_that_only_private_addresses_may_reach_is_warned_of(block):
    (warning,) = in_public(block)
    assert block in warning
    assert in_public("8.8.8.8/32", block) == []


def test_callers_of_the_internet_need_a_head_with_a_public_address():
    (warning,) = make(access=OPEN | {"serve_cidrs": ["8.8.8.0/24", "10.1.2.0/24"]}).warnings
    assert "serve_cidrs" in warning
    assert "(8.8.8.0/24)" in warning
    public = {"public_ip": True, "ssh_cidrs": ["8.8.8.8/32"], "serve_cidrs": ["8.8.8.0/24"]}
    assert make(access=OPEN | public).warnings == []


def test_a_region_that_is_nearly_a_known_one_is_warned_of():
    (warning,) = make(location="uksuth", access=OPEN).warnings
    assert "uksuth" in warning
    assert "uksouth?" in warning
    assert make(location="italynorth", access=OPEN).warnings == []


def mirror_notes(found):
    return [note for note in found.notes if "Docker Hub" in note]


def test_copies_are_noted_with_their_names():
    (note,) = mirror_notes(make())
    assert "mirror: false" in note
    for name in ("rayproject/ray:", "prom/prometheus:", "grafana/grafana:"):
        assert name in note
    assert "registry" in {other.name for other in make().costs.others}


def test_without_the_mirror_there_is_no_note_and_no_registry():
    found = make(image={"mirror": False})
    assert mirror_notes(found) == []
    assert "registry" not in {other.name for other in found.costs.others}


def hub_warnings(workers, **image):
    found = make(group("g", max_workers=workers), image=image)
    return [warning for warning in found.warnings if "Docker Hub" in warning]


def test_more_pulls_than_docker_hub_allows_are_warned_of():
    assert hub_warnings(98) == []
    assert hub_warnings(97, mirror=False) == []
    (warning,) = hub_warnings(98, mirror=False)
    assert "101 images" in warning
    assert hub_warnings(98, mirror=False, reference="ghcr.io/me/ray:1") == []


def test_a_way_in_ends_the_warning():
    assert any("cannot be reached" in w for w in make().warnings)
    assert make(access={"ssh_public_key": KEY, "ssh_cidrs": ["10.0.0.0/8"]}).warnings == []
    found = make(
        network={"subnet_ids": SUBNET_IDS},
        access={"ssh_public_key": KEY, "ssh_cidrs": ["10.0.0.0/8"]},
    )
    assert found.warnings == []
    assert "your head subnet" in shown(found)


def test_small_temporary_disks_are_warned_of():
    (warning,) = make(
        group("g", "Standard_NC24ads_A100_v4", market="spot-with-fallback"),
        group("t", T4),
        access={"ssh_public_key": KEY, "ssh_cidrs": ["10.0.0.0/8"]},
    ).warnings
    assert warning.startswith("g: the temporary disk of NC24ads_A100_v4 has 64 GiB, of which 33")


def test_a_temporary_disk_too_small_for_the_system_is_warned_of(monkeypatch):
    from sunspot import catalog

    small = catalog.get(T4).__class__(**{**vars(catalog.get(T4)), "temp_gib": 16})
    monkeypatch.setattr("sunspot.targets.azure.machine.size_for", lambda _: small)
    found = make(group("g", T4))
    assert any("16 GiB, the system needs 31: each worker gets" in w for w in found.warnings)


def test_the_drivers_way_is_noted(amd_without_infiniband):
    found = make(head="Standard_ND96isr_MI300X_v5", image={"reference": "registry.test/rocm:1"})
    assert "from the VM's own image" in found.notes[0]
    assert "secure boot is off" in found.notes[0]
    assert make(storage={"protect": False}, image={"mirror": False}).notes == []


def test_what_the_list_of_regions_does_not_tell_is_noted_once():
    h100 = "Standard_NC40ads_H100_v5"
    (note,) = [one for one in make(group("a", h100), group("b", h100)).notes if "Whether" in one]
    assert f"uksouth has {h100} could not be checked" in note
    assert f"az vm list-skus --location uksouth --size {h100}" in note
    stack = parse(group("a", T4), location="italynorth")
    (note,) = [one for one in preview.collect(stack, ROOT).notes if "Whether" in one]
    assert f"italynorth has {D4}, {T4} could not be checked" in note
    assert not any("Whether" in one for one in make(group("a", T4)).notes)


def test_a_size_that_was_let_pass_is_a_warning():
    stack = parse(group("a", T4), check_region=False, location="ukwest")
    assert any(f"ukwest had no {T4}" in one for one in preview.collect(stack, ROOT).warnings)


UNLISTED = {"vm_size": "NC8ads_X100_v9", "cpu": 8, "memory_gb": 64, "gpu_count": 1}


def test_a_size_that_is_not_listed_is_warned_of_and_counted():
    found = make({"name": "new", "market": "on-demand", "worker_nodes": UNLISTED})
    (warning,) = (w for w in found.warnings if "catalogue does not have" in w)
    for part in ("Standard_NC8ads_X100_v9", "8 vCPU, 64 GiB, 1 GPU)", "NVIDIA", "uksouth"):
        assert part in warning
    pool = found.plan.pools[0]
    assert pool.machine.driver == "nvidia"
    assert not pool.machine.ephemeral_disk
    assert (pool.machine.resources.cpus, pool.machine.resources.gpus) == (8, 1)
    assert {q.name: q.vcpus for q in found.quotas}["the family of NC8ads_X100_v9"] == 8
    assert found.costs.unknown == ("Standard_NC8ads_X100_v9",)
    assert "NC8ads_X100_v9" in shown(found)


def test_listed_sizes_are_not_warned_of():
    assert not any("catalogue" in w for w in make(group("t", T4)).warnings)
