"""A set that the autoscaler has resized meanwhile: an update must not write its old size."""

import pulumi
import pytest
from builds import build, group, make_stack

from infra.growing import refuse_resized
from sunspot.errors import SunspotError

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


def refuse(capacity, now):
    refuse_resized({"sku": {"capacity": capacity}}, lambda _: now, SET)


@pytest.mark.parametrize("size", [0, 2])
def test_a_set_of_the_same_size_is_written(size):
    refuse(float(size), size)


@pytest.mark.parametrize(("written", "now"), [(2.0, 5), (None, 5), (8.0, 2)])
def test_one_of_another_size_is_not_and_the_error_says_what_to_do(written, now):
    with pytest.raises(pulumi.RunError, match=rf"x-gpu went from \d to {now} .* again"):
        refuse(written, now)


def test_nor_one_whose_size_azure_does_not_say():
    def silent(_):
        raise SunspotError("HTTP 429")

    with pytest.raises(pulumi.RunError, match=r"cannot see .* again\. HTTP 429"):
        refuse_resized({"sku": {"capacity": 2.0}}, silent, SET)


def test_without_a_login_to_ask_with_it_is_written_with_a_warning(monkeypatch):
    said = []
    monkeypatch.setattr(pulumi.log, "warn", said.append)
    refuse(2.0, None)
    assert "no login" in said[0]
