"""A set that the autoscaler has made larger meanwhile: an update must not make it smaller."""

import pulumi
import pytest
from builds import build, group, make_stack

from infra.growing import refuse_fewer

SET = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/virtualMachineScaleSets/x-gpu"


def test_only_the_autoscalers_sets_are_looked_at_before_an_update():
    stack = make_stack(group("fixed"), group("gpu", min_workers=0, max_workers=4))
    run = build(stack, capacity=lambda _: 0)
    hooks = {
        one.inputs["vmScaleSetName"]: one.before_update for one in run.of("VirtualMachineScaleSet")
    }
    assert hooks == {"sunspot-test-fixed": [], "sunspot-test-gpu": ["sunspot-keep-machines"]}
    without = build(stack)
    assert not any(one.before_update for one in without.resources)


@pytest.mark.parametrize(("written", "now"), [(2, 2), (2, 1), (2, None), (0, 0)])
def test_a_set_that_has_not_grown_is_written(written, now):
    refuse_fewer({"sku": {"capacity": float(written)}}, now, SET)


@pytest.mark.parametrize("inputs", [{"sku": {"capacity": 2.0}}, {"sku": {}}, {}])
def test_one_that_has_grown_is_not_and_the_error_says_what_to_do(inputs):
    with pytest.raises(pulumi.RunError, match=r"x-gpu has grown from \d to 5 .* again"):
        refuse_fewer(inputs, 5, SET)
