"""What a cluster costs an hour."""

from sunspot.catalog import cost
from sunspot.spec import AutoscalerConfig, RayClusterConfig, RayNodeConfig, ScalingGroup

D4 = RayNodeConfig(vm_size="Standard_D4s_v5")
T4 = RayNodeConfig(vm_size="Standard_NC4as_T4_v3")
MI300X = RayNodeConfig(vm_size="Standard_ND96isr_MI300X_v5")


def cluster(*groups, head=D4):
    return RayClusterConfig(
        head_node=head,
        scaling_groups=groups,
        autoscaler_config=AutoscalerConfig(cpu=0.5, memory_gb=1),
    )


def group(node, market, minimum, maximum):
    return ScalingGroup(worker_nodes=node, market=market, min_workers=minimum, max_workers=maximum)


def test_spot_workers_cost_the_spot_price():
    found = cost.estimate(cluster(group(T4, "spot", 1, 4)))
    assert (found.minimum, found.maximum) == (0.192 + 0.063, 0.192 + 4 * 0.063)
    assert (found.assumed, found.unknown) == ((), ())


def test_a_group_that_falls_back_may_be_all_on_demand():
    found = cost.estimate(cluster(group(T4, "spot-with-fallback", 1, 2)))
    assert (found.minimum, found.maximum) == (0.192 + 0.063, 0.192 + 2 * 0.526)


def test_on_demand_price_stands_for_an_unknown_spot_price():
    found = cost.estimate(cluster(group(D4, "spot", 0, 2)))
    assert found.maximum == round(3 * 0.192, 4)
    assert found.assumed == ("Standard_D4s_v5",)


def test_sizes_without_any_price_are_named():
    found = cost.estimate(cluster(head=MI300X))
    assert (found.minimum, found.unknown) == (0, ("Standard_ND96isr_MI300X_v5",))


def test_nodes_by_need_cost_what_fits_them():
    assert cost.estimate(cluster(head=RayNodeConfig(cpu=3, memory_gb=10))).minimum == 0.192


def test_as_plain_values():
    values = cost.estimate(cluster(group(T4, "spot", 0, 4))).as_dict()
    assert (values["minimum"], values["maximum"]) == (0.192, 0.444)
    assert "eastus" in str(values["prices"])
