"""What an update of a stack makes of groups that were scaled by hand."""

from dataclasses import replace

import pulumi
import pytest
from builds import build, group, make_stack

from sunspot.errors import SunspotError
from sunspot.node.azure.live import LiveSettings, decoded, parse
from sunspot.targets.azure import by_hand

FIXED = group("fixed", min_workers=2, max_workers=2)
SPARE = {"market": "spot-with-fallback", "min_workers": 1, "max_workers": 4}
GPU = group("gpu", **SPARE)


def settings(run):
    return parse(decoded(run.one("VirtualMachine").inputs["userData"]))


def scaled(stack, **given):
    """The settings of the stack's cluster once groups were scaled by hand."""
    found = settings(build(stack))
    for one in stack.cluster.scaling_groups:
        if one.name in given:
            found = by_hand.resized(found, one, given[one.name], nonce="1")
    return found


def updated(stack, running):
    """What an update makes of the capacity of `fixed`, and of the limits of `gpu`."""
    asked = []

    def read(vm):
        asked.append(vm)
        if isinstance(running, Exception):
            raise running
        return running

    run = build(stack, read=read)
    (vm,) = asked
    assert vm.endswith("/providers/Microsoft.Compute/virtualMachines/sunspot-test-head")
    (fixed,) = [
        one.inputs["sku"]["capacity"]
        for one in run.of("VirtualMachineScaleSet")
        if one.inputs["vmScaleSetName"] == "sunspot-test-fixed"
    ]
    config = settings(run).autoscaler
    assert config is not None
    types = config["available_node_types"]
    gpu, twin = types["gpu"], types["gpu-on-demand"]
    assert gpu["max_workers"] == twin["max_workers"]
    assert twin["min_workers"] == 0
    return fixed, (gpu["min_workers"], gpu["max_workers"])


def test_an_update_keeps_what_was_scaled_by_hand():
    stack = make_stack(FIXED, GPU)
    running = scaled(stack, fixed=(1, 1), gpu=(2, 3))
    assert updated(stack, running) == (1, (2, 3))
    assert settings(build(stack, read=lambda _: running)) == running


def test_an_edit_of_a_groups_own_size_is_what_holds():
    running = scaled(make_stack(FIXED, GPU), fixed=(1, 1), gpu=(2, 3))
    assert updated(make_stack(FIXED, group("gpu", **{**SPARE, "max_workers": 6})), running) == (
        1,
        (1, 6),
    )
    more = group("fixed", min_workers=3, max_workers=3)
    assert updated(make_stack(more, GPU), running) == (3, (2, 3))


@pytest.mark.parametrize("running", [None, LiveSettings(), SunspotError("no login")])
def test_without_a_cluster_or_an_answer_the_files_sizes_hold(running):
    assert updated(make_stack(FIXED, GPU), running) == (2, (1, 4))


def test_what_the_sizes_by_hand_become_is_told_with_how_to_have_the_other():
    stack = make_stack(FIXED, GPU)
    running = scaled(stack, fixed=(1, 1), gpu=(2, 3))
    edited = make_stack(FIXED, group("gpu", **{**SPARE, "max_workers": 6}))
    fixed, gpu = by_hand.told(running, edited.cluster.scaling_groups, "test")
    assert "'fixed' was scaled by hand to 1, and keeps it; Pulumi.test.yaml says 2" in fixed
    assert "min_workers: 1, max_workers: 1" in fixed
    assert "sunspot scale test fixed=2" in fixed
    assert "'gpu' was scaled by hand to 2:3" in gpu
    assert "gets the file's 1:6" in gpu
    assert "sunspot scale test gpu=2:3" in gpu


def test_a_size_as_in_the_file_is_not_told():
    stack = make_stack(FIXED, GPU)
    running = scaled(stack, gpu=(1, 4))
    assert by_hand.told(running, stack.cluster.scaling_groups, "test") == []


def test_what_somebody_else_wrote_as_sizes_is_an_error():
    with pytest.raises(SunspotError, match="scaled by hand cannot be read"):
        by_hand.entries(LiveSettings(scaled={"gpu": {"size": [1]}}))


def warned(monkeypatch, stack, running):
    """What an update of a stack warns of."""
    found = []
    monkeypatch.setattr(pulumi.log, "warn", found.append)
    build(stack, read=lambda _: running)
    return [one for one in found if "what runs on them" in one]


def test_a_group_that_leaves_undrained_is_warned_of(monkeypatch):
    running = scaled(make_stack(FIXED, GPU))
    assert warned(monkeypatch, make_stack(FIXED, GPU), running) == []
    (told,) = warned(monkeypatch, make_stack(FIXED), running)
    assert "gpu, gpu-on-demand" in told
    assert "sunspot up test" in told
    assert "sunspot scale test gpu=0:0" in told
    (told,) = warned(monkeypatch, make_stack(GPU), running)
    assert "workers of fixed" in told


def test_a_group_that_has_left_or_has_no_workers_is_not_warned_of(monkeypatch):
    stack = make_stack(FIXED, GPU)
    left = replace(scaled(stack), leaving=("gpu", "gpu-on-demand"))
    assert warned(monkeypatch, make_stack(FIXED), left) == []
    empty = scaled(stack, fixed=(0, 0), gpu=(0, 0))
    assert warned(monkeypatch, make_stack(FIXED), empty) == []
    assert warned(monkeypatch, make_stack(GPU), empty) == []
