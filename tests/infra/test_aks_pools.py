"""The node pools of AKS: the pods of each group fit on their own, and all have addresses."""

import pytest
from builds import build, group
from test_aks import RANGES, aks_stack, pools

from sunspot.errors import UsageError
from sunspot.targets.azure.aks.plan import plan


@pytest.mark.parametrize(
    "given",
    [{"gpu_nodes": {"labels": {"team": "ml"}}}, {"spot_nodes": {}}, {"max_pods": 60}],
    ids=["gpu_nodes", "spot_nodes", "max_pods"],
)
def test_what_is_said_of_nodes_elsewhere_keeps_no_pod_from_its_pool(given):
    stack = aks_stack(kubernetes=given)
    planned, found = plan(stack), pools(build(stack))
    groups = {one["groupName"]: one["template"] for one in specs(planned)["workerGroupSpecs"]}
    for pool in planned.pools[1:]:
        spec = groups[pool.node_type]["spec"]
        assert {f"{one['key']}={one['value']}:NoSchedule" for one in spec["tolerations"]} >= set(
            pool.taints
        )
        assert spec["nodeSelector"].items() <= pool.labels.items()
        assert found[pool.name]["maxPods"] == given.get("max_pods", 30)


def specs(planned):
    return planned.manifest[0]["spec"]


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("team", "ml"),
        ("kubernetes.azure.com/agentpool", "cpu"),
        ("kubernetes.io/os", "windows"),
        ("kubernetes.azure.com/mode", "system"),
        ("node.kubernetes.io/instance-type", "Standard_D2s_v5"),
    ],
)
def test_a_selector_that_no_node_of_the_groups_own_pool_has_is_refused(key, value):
    asked = f"ask for nodes with the label {key}: {value}"
    with pytest.raises(UsageError, match=f"pods of head {asked}"):
        plan(aks_stack(kubernetes={"cpu_nodes": {"node_selector": {key: value}}}))
    with pytest.raises(UsageError, match=f"pods of gpu {asked}"):
        plan(aks_stack(kubernetes={"patch": {"spec": {"nodeSelector": {key: value}}}}))


@pytest.mark.parametrize(
    ("key", "value"), [("kubernetes.io/os", "linux"), ("topology.kubernetes.io/zone", "x")]
)
def test_a_selector_by_what_aks_gives_nodes_is_taken(key, value):
    nodes = {"node_selector": {key: value}}
    assert plan(aks_stack(kubernetes={"cpu_nodes": nodes}))


def test_a_size_that_aks_does_not_take_is_refused():
    with pytest.raises(UsageError, match=r"cpu has Standard_F1as_v7 with 1 vCPU, .* 2 or more"):
        plan(aks_stack(group("cpu", "Standard_F1as_v7", max_workers=2)))


def test_infiniband_is_refused_with_the_reason_that_holds_on_aks():
    with pytest.raises(UsageError, match="has InfiniBand, whose drivers Sunspot does not install"):
        plan(aks_stack(group("gpu", "Standard_ND96asr_v4", max_workers=2)))


def test_the_region_has_the_size_of_kubernetes_own_nodes_too():
    elsewhere = {**RANGES, "system_vm_size": "Standard_FX4mds"}
    stack = aks_stack(group("cpu", max_workers=2), aks=elsewhere, region="australiacentral")
    with pytest.raises(UsageError, match=r"has no Standard_FX4mds \(for system_vm_size\)"):
        plan(stack)
    assert plan(aks_stack(group("cpu", max_workers=2), region="australiacentral"))


def test_more_nodes_than_there_are_addresses_for_are_refused():
    many = group("fixed", min_workers=0, max_workers=300)
    with pytest.raises(UsageError, match=r"addresses for the pods of 256 nodes.*304: give a /15,"):
        plan(aks_stack(many))
    assert plan(aks_stack(many, aks={**RANGES, "pod_cidr": "10.240.0.0/15"}))


def test_a_group_with_a_fallback_may_have_its_maximum_in_both_pools():
    both = group("both", market="spot-with-fallback", min_workers=0, max_workers=12)
    small = {**RANGES, "pod_cidr": "10.240.0.0/20"}
    with pytest.raises(UsageError, match=r"pods of 16 nodes.*28: give a /19,"):
        plan(aks_stack(both, aks=small))
