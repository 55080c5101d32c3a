"""The config classes: Sematic's rules and defaults, and the ones added to them."""

import dataclasses
from importlib import metadata

import pytest
from pydantic import TypeAdapter

from sunspot import catalog
from sunspot.errors import UsageError
from sunspot.spec import (
    AutoscalerConfig,
    RayClusterConfig,
    RayNodeConfig,
    ScalingGroup,
    SimpleRayCluster,
    size_for,
)
from sunspot.spec_values import MAX_GROUP_NAME

NODE = RayNodeConfig(cpu=4, memory_gb=16)
AUTOSCALER = AutoscalerConfig(cpu=0.5, memory_gb=1)


def refusal(model, **values):
    """The message with which a class refuses these values."""
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - callers rely on this very type
        model(**values)
    return str(caught.value)


def group(**values):
    return ScalingGroup(**{"worker_nodes": NODE, **values})


# Nodes


def test_node_keeps_what_it_was_given():
    node = RayNodeConfig(cpu=16, memory_gb=32, gpu_count=1)
    assert (node.cpu, node.memory_gb, node.gpu_count, node.vm_size) == (16, 32, 1, None)
    assert RayNodeConfig(cpu=0.5, memory_gb=2.0).gpu_count == 0


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"cpu": -1, "memory_gb": 4}, ["cpu", "-1", "0 or more"]),
        ({"cpu": True, "memory_gb": 4}, ["cpu", "not a number", "True"]),
        ({"cpu": "4", "memory_gb": 4}, ["cpu", "not a number", "'4'"]),
        ({"cpu": float("nan"), "memory_gb": 4}, ["cpu", "finite"]),
        ({"cpu": float("inf"), "memory_gb": 4}, ["cpu", "finite"]),
        ({"cpu": None, "memory_gb": 4}, ["cpu", "not a number", "None"]),
        ({"cpu": 4, "memory_gb": 1.9}, ["memory_gb", "2 or more", "1.9"]),
        ({"cpu": 4, "memory_gb": False}, ["memory_gb", "not a number", "False"]),
        ({"cpu": 4, "memory_gb": 4, "gpu_count": -1}, ["gpu_count", "0 or more", "-1"]),
        (
            {"cpu": 4, "memory_gb": 4, "gpu_count": True},
            ["gpu_count", "not a whole number", "True"],
        ),
        ({"cpu": 4, "memory_gb": 4, "gpu_count": 1.0}, ["gpu_count", "not a whole number", "1.0"]),
        ({"cpu": 4, "memory_gb": 4, "gpus": 1}, ["gpus", "unknown argument", "gpu_count"]),
        ({"cpu": 4}, ["memory_gb missing", "both cpu and memory_gb, or a vm_size"]),
        ({"memory_gb": 4}, ["cpu missing", "both cpu and memory_gb, or a vm_size"]),
        ({}, ["cpu and memory_gb missing"]),
        ({"vm_size": "Standard_D4s_v99"}, ["Standard_D4s_v99", "Standard_D4s_v5"]),
        ({"vm_size": "Standard_NC6s_v3"}, ["2025-09-30", "Standard_NC24ads_A100_v4"]),
        ({"vm_size": 4}, ["vm_size", "not text"]),
        ({"vm_size": "D4s_v5", "cpu": 8}, ["cpu 8 is not the 4 of Standard_D4s_v5", "leave it"]),
        ({"vm_size": "D4s_v5", "memory_gb": 8}, ["memory_gb 8 is not the 16 of"]),
        ({"vm_size": "NC4as_T4_v3", "gpu_count": 0}, ["gpu_count 0 is not the 1 of"]),
    ],
)
def test_node_refuses(values, expected):
    message = refusal(RayNodeConfig, **values)
    for part in expected:
        assert part in message


def test_vm_size_fills_in_the_rest_and_is_spelt_properly():
    node = RayNodeConfig(vm_size="nc64AS_t4_v3")
    assert node.vm_size == "Standard_NC64as_T4_v3"
    assert (node.cpu, node.memory_gb, node.gpu_count) == (64, 440, 4)
    assert RayNodeConfig(vm_size="Standard_NC64as_T4_v3", cpu=64, gpu_count=4) == node


def test_vm_size_and_arguments_by_position_must_agree():
    assert RayNodeConfig(64, vm_size="NC64as_T4_v3") == RayNodeConfig(vm_size="NC64as_T4_v3")
    with pytest.raises(UsageError, match="cpu 4 is not the 64"):
        RayNodeConfig(4, vm_size="NC64as_T4_v3")


@pytest.mark.parametrize("shape", [{}, {"cpu": 8}, {"memory_gb": 64}, {"cpu": 0, "memory_gb": 64}])
def test_a_size_that_is_not_listed_needs_its_shape(shape):
    with pytest.raises(UsageError, match="give its cpu, memory_gb and gpu_count"):
        RayNodeConfig(vm_size="ND8x_X100_v9", **shape)


def test_a_size_that_is_not_listed_is_taken_with_its_shape():
    node = RayNodeConfig(vm_size="ND8x_X100_v9", cpu=8, memory_gb=64, gpu_count=2)
    assert node.vm_size == "Standard_ND8x_X100_v9"
    size = size_for(node)
    assert (size.vcpus, size.memory_gib, size.gpu_count) == (8, 64, 2)
    assert not size.listed
    assert TypeAdapter(RayNodeConfig).validate_python(dataclasses.asdict(node)) == node


@pytest.mark.parametrize(
    ("node", "size"),
    [
        (RayNodeConfig(cpu=3, memory_gb=10), "Standard_D4s_v5"),
        (RayNodeConfig(cpu=2, memory_gb=8, gpu_count=1), "Standard_NC4as_T4_v3"),
        # A named size is kept, though a cheaper one has as much.
        (RayNodeConfig(vm_size="NC8as_T4_v3"), "Standard_NC8as_T4_v3"),
    ],
)
def test_size_for(node, size):
    assert size_for(node).name == size


def test_size_for_needs_that_nothing_fits():
    with pytest.raises(UsageError, match="short of 4 GPUs"):
        size_for(RayNodeConfig(cpu=2, memory_gb=8, gpu_count=12))


def test_config_is_frozen_and_hashable():
    with pytest.raises(dataclasses.FrozenInstanceError, match="cpu"):
        NODE.cpu = 8  # pyright: ignore[reportAttributeAccessIssue]
    assert len({NODE, RayNodeConfig(cpu=4, memory_gb=16)}) == 1


# Groups


def test_group_defaults():
    one = ScalingGroup(worker_nodes=NODE)
    assert (one.name, one.min_workers, one.max_workers, one.market) == ("", 1, 1, "on-demand")
    assert not one.is_elastic()


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"min_workers": -1}, ["min_workers", "0 or more", "-1"]),
        ({"min_workers": True}, ["min_workers", "not a whole number", "True"]),
        ({"min_workers": 0, "max_workers": 0}, ["max_workers", "greater than 0"]),
        ({"min_workers": 3, "max_workers": 2}, ["max_workers 2 is below min_workers 3", "raise"]),
        ({"min_workers": 3}, ["max_workers 1 is below min_workers 3"]),
        ({"max_workers": 2.0}, ["max_workers", "not a whole number"]),
        ({"market": "Spot"}, ["market", "'Spot'", "spot-with-fallback", "mean spot?"]),
        ({"name": "head"}, ["'head' is reserved"]),
        ({"name": "GPU"}, ["'GPU'", "lower-case"]),
        ({"name": "a_b"}, ["'a_b'"]),
        ({"name": "1st"}, ["'1st'", "letter first"]),
        ({"name": "gpu-"}, ["'gpu-'", "no hyphen last"]),
        ({"name": "gpu\n"}, ["'gpu\\n'"]),
        ({"name": "x" * 25}, ["25 characters", "at most 24", "shorten"]),
        ({"name": 1}, ["name", "not text"]),
    ],
)
def test_group_refuses(values, expected):
    message = refusal(ScalingGroup, worker_nodes=NODE, **values)
    for part in expected:
        assert part in message


@pytest.mark.parametrize("name", ["a", "gpu", "a100-spot", "x" * MAX_GROUP_NAME])
def test_group_names_that_fit(name):
    assert group(name=name).name == name


def test_longest_names_fit_a_dns_label():
    longest = f"sunspot-{'s' * 12}-{'g' * MAX_GROUP_NAME}-on-demand" + "0" * 8
    assert len(longest) == 63


@pytest.mark.parametrize(
    ("market", "types"),
    [
        ("spot", ("gpu",)),
        ("on-demand", ("gpu",)),
        ("spot-with-fallback", ("gpu", "gpu-on-demand")),
    ],
)
def test_node_types(market, types):
    assert group(name="gpu", market=market).node_types() == types


# Clusters


def test_cluster_defaults():
    config = RayClusterConfig(head_node=NODE)
    assert config.scaling_groups == []
    assert config.autoscaler_config is None
    assert config.ray_version == metadata.version("ray")
    assert not config.requires_autoscale()


@pytest.mark.parametrize("version", ["2.60.0", "v2.60.0"])
def test_ray_versions_that_pass(version):
    assert RayClusterConfig(head_node=NODE, ray_version=version).ray_version == version


@pytest.mark.parametrize(
    "version",
    ["1.13.0", "2.59.0", "2.60.1", "2.60.0-py311", "", "latest", "2.0; rm -rf /", "2.60.0\n"],
)
def test_ray_versions_that_do_not(version):
    message = refusal(RayClusterConfig, head_node=NODE, ray_version=version)
    assert repr(version) in message
    assert "tested with 2.60.0" in message


def test_missing_ray_asks_for_a_version(monkeypatch):
    def absent(name):
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "version", absent)
    assert "ray_version" in refusal(RayClusterConfig, head_node=NODE)
    assert RayClusterConfig(head_node=NODE, ray_version="2.60.0").ray_version == "2.60.0"


@pytest.mark.parametrize(
    ("minimum", "maximum", "autoscaler", "scales"),
    [(1, 1, None, False), (1, 1, AUTOSCALER, False), (0, 1, AUTOSCALER, True)],
)
def test_requires_autoscale(minimum, maximum, autoscaler, scales):
    config = RayClusterConfig(
        head_node=NODE,
        scaling_groups=[group(min_workers=minimum, max_workers=maximum)],
        autoscaler_config=autoscaler,
    )
    assert config.requires_autoscale() is scales


def test_scaling_without_an_autoscaler_is_refused():
    groups = [group(), group(max_workers=2), group(name="gpu", min_workers=0, max_workers=7)]
    message = refusal(RayClusterConfig, head_node=NODE, scaling_groups=groups)
    assert "workers-2 1-2, gpu 0-7" in message
    assert "workers 1-1" not in message
    assert "cpu 0.5 and memory_gb 1" in message


@pytest.mark.parametrize(
    ("groups", "clash"),
    [
        ([{"name": "workers"}, {"name": "workers"}], "'workers'"),
        ([{"name": "a"}, {"name": "b"}, {"name": "a"}], "groups [0] and [2]"),
        (
            [{"name": "a", "market": "spot-with-fallback"}, {"name": "a-on-demand"}],
            "'a-on-demand'",
        ),
    ],
)
def test_clashing_names_are_refused(groups, clash):
    made = [group(**values) for values in groups]
    message = refusal(RayClusterConfig, head_node=NODE, scaling_groups=made)
    assert clash in message
    assert "give each group its own name" in message


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"cpu": 0, "memory_gb": 1}, ["cpu", "greater than 0"]),
        ({"cpu": 1, "memory_gb": 0.9}, ["memory_gb", "1 or more", "0.9"]),
        ({"cpu": 1}, ["memory_gb", "missing"]),
        ({"cpu": True, "memory_gb": 1}, ["cpu", "not a number"]),
    ],
)
def test_autoscaler_refuses(values, expected):
    message = refusal(AutoscalerConfig, **values)
    for part in expected:
        assert part in message


# SimpleRayCluster


def test_simple_cluster_counts_the_head():
    config = SimpleRayCluster(n_nodes=3, node_config=NODE)
    assert config.head_node == NODE
    assert config.scaling_groups == [ScalingGroup(NODE, min_workers=2, max_workers=2)]
    assert [group.name for group in config.with_names().scaling_groups] == ["workers"]


def test_simple_cluster_of_one_node_has_no_group():
    assert SimpleRayCluster(n_nodes=1, node_config=NODE).scaling_groups == []


def test_simple_cluster_may_grow():
    config = SimpleRayCluster(
        n_nodes=1,
        node_config=NODE,
        max_nodes=4,
        ray_version="v2.60.0",
        autoscaler_config=AUTOSCALER,
    )
    (workers,) = config.scaling_groups
    assert (workers.min_workers, workers.max_workers) == (0, 3)
    assert config.ray_version == "v2.60.0"
    assert config.autoscaler_config == AUTOSCALER
    assert config.requires_autoscale()


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"n_nodes": 0}, ["n_nodes 0", "1 or more"]),
        ({"n_nodes": True}, ["n_nodes True", "whole number"]),
        ({"n_nodes": 1.5}, ["n_nodes 1.5", "whole number"]),
        ({"n_nodes": 3, "max_nodes": 2}, ["max_nodes 2", "n_nodes 3"]),
        ({"n_nodes": 3, "max_nodes": "4"}, ["max_nodes '4'", "whole number"]),
        ({"n_nodes": 2, "max_nodes": 3}, ["workers 1-2", "autoscaler"]),
        ({"n_nodes": 2, "ray_version": "1.0"}, ["'1.0'"]),
    ],
)
def test_simple_cluster_refuses(values, expected):
    message = refusal(SimpleRayCluster, node_config=NODE, **values)
    for part in expected:
        assert part in message


# Round trip


@pytest.mark.parametrize("size", catalog.load(), ids=lambda size: size.name)
def test_every_size_comes_back_from_json(size):
    config = RayClusterConfig(
        head_node=NODE,
        scaling_groups=[
            group(worker_nodes=RayNodeConfig(vm_size=size.name), market="spot-with-fallback"),
        ],
        autoscaler_config=AUTOSCALER,
    )
    adapter = TypeAdapter(RayClusterConfig)
    assert adapter.validate_python(adapter.dump_python(config, mode="json")) == config
    assert adapter.validate_json(adapter.dump_json(config)) == config
