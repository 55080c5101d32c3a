"""Code written for Sematic's Ray integration, with only the import changed.

What it does with the classes works here too; docs/sematic.md lists what differs, and why. The
cases come from Sematic's own tests and pages (v0.41.0); a real cluster is in tests/programs.
"""

import dataclasses
import uuid
from dataclasses import dataclass

import pytest
import ray
from fake_target import FakeRay, FakeTarget

from sunspot import (
    AutoscalerConfig,
    RayCluster,
    RayClusterConfig,
    RayNodeConfig,
    ScalingGroup,
    SimpleRayCluster,
    Stack,
)
from sunspot.cluster import ResourceState
from sunspot.errors import SunspotError
from sunspot.targets import clusters

SMALL = RayNodeConfig(cpu=1, memory_gb=2)
LARGE = RayNodeConfig(cpu=8, memory_gb=32, gpu_count=1)
AUTOSCALER = AutoscalerConfig(cpu=0.5, memory_gb=1)
CONFIG = SimpleRayCluster(n_nodes=1, node_config=SMALL, ray_version="2.60.0")


@pytest.fixture
def target(tmp_path, monkeypatch):
    token = tmp_path / "token"
    token.write_text("ab" * 32)
    fake = FakeTarget(token)
    monkeypatch.setattr(clusters, "get", lambda _name: fake)
    return fake


@pytest.fixture
def fake_ray(monkeypatch):
    fake = FakeRay()
    for name in ("init", "shutdown"):
        monkeypatch.setattr(ray, name, getattr(fake, name))
    monkeypatch.setattr(ray, "is_initialized", lambda: fake.initialized)
    return fake


# Arguments


def test_configs_take_their_fields_by_position():
    assert RayNodeConfig(8, 32, 1) == LARGE
    assert ScalingGroup(LARGE, 1, 3) == ScalingGroup(
        worker_nodes=LARGE, min_workers=1, max_workers=3
    )
    assert AutoscalerConfig(0.5, 1) == AUTOSCALER
    groups = [ScalingGroup(LARGE, 1, 3)]
    assert RayClusterConfig(SMALL, groups, "2.60.0", AUTOSCALER) == RayClusterConfig(
        head_node=SMALL, scaling_groups=groups, ray_version="2.60.0", autoscaler_config=AUTOSCALER
    )
    assert SimpleRayCluster(2, SMALL, 4, "2.60.0", AUTOSCALER).scaling_groups == [
        ScalingGroup(SMALL, 1, 3)
    ]


def test_a_cluster_takes_its_first_fields_by_position(target):
    cluster = RayCluster(CONFIG, False, 600)
    assert (cluster.config, cluster.forward_logs) == (CONFIG, False)
    assert cluster.get_activation_timeout_seconds() == 600
    assert cluster.get_deactivation_timeout_seconds() == 300
    assert RayCluster(CONFIG).get_activation_timeout_seconds() == 900
    assert target.calls == []


@pytest.mark.parametrize(
    "call",
    [
        lambda: RayNodeConfig(1, 2, 0, None, 5),  # type: ignore[call-arg]
        lambda: RayNodeConfig(1, memory_gb=2, cpu=1),  # type: ignore[misc]
    ],
)
def test_too_many_or_doubled_arguments_are_pythons_own_error(call):
    with pytest.raises(TypeError):
        call()


def test_a_cluster_without_a_config_is_a_value_error():
    with pytest.raises(ValueError, match="config must be a RayClusterConfig"):
        RayCluster()


# Groups


def test_groups_need_no_names_and_the_list_compares_equal():
    groups = [ScalingGroup(SMALL, 1, 1), ScalingGroup(LARGE, 0, 2)]
    config = RayClusterConfig(head_node=SMALL, scaling_groups=groups, autoscaler_config=AUTOSCALER)
    assert config.scaling_groups == groups
    assert config.scaling_groups is not groups  # what the caller does to the list changes nothing
    stack = Stack(name="mine", cluster=config)
    assert [group.name for group in stack.cluster.scaling_groups] == ["workers", "workers-2"]


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ([("", "spot"), ("workers", "spot")], ["workers-2", "workers"]),
        (
            [("workers-2", "spot"), ("", "spot"), ("", "spot")],
            ["workers-2", "workers", "workers-3"],
        ),
        (
            [("workers-on-demand", "spot"), ("", "spot-with-fallback")],
            ["workers-on-demand", "workers-2"],
        ),
    ],
)
def test_a_default_name_that_is_taken_is_left_out(given, named):
    groups = [ScalingGroup(SMALL, name=name, market=market) for name, market in given]
    config = RayClusterConfig(SMALL, groups, autoscaler_config=AUTOSCALER).with_names()
    assert [group.name for group in config.scaling_groups] == named
    assert config.with_names() is config


# Messages


@pytest.mark.parametrize(
    ("make", "named"),
    [
        (lambda: RayNodeConfig(1, 1.5), ["memory_gb", "1.5"]),
        (lambda: RayNodeConfig("four", 4), ["cpu", "'four'"]),  # type: ignore[arg-type]
        (lambda: RayNodeConfig(4, 4, 0.5), ["gpu_count", "0.5"]),  # type: ignore[arg-type]
        (lambda: ScalingGroup(SMALL, -1), ["min_workers", "-1"]),
        (lambda: ScalingGroup(SMALL, 0, 0), ["max_workers", "0"]),
        (lambda: ScalingGroup(SMALL, 3, 2), ["max_workers 2", "min_workers 3"]),
        (lambda: AutoscalerConfig(1, 0.5), ["memory_gb", "0.5"]),
        (lambda: RayClusterConfig(SMALL, [ScalingGroup(SMALL, 1, 2)]), ["autoscaler_config"]),
        (lambda: RayClusterConfig(SMALL, [SMALL]), ["scaling_groups[0]"]),  # type: ignore[list-item]
        (lambda: SimpleRayCluster(0, SMALL), ["n_nodes", "0"]),
        (lambda: SimpleRayCluster(4, SMALL, 3), ["max_nodes 3", "n_nodes 4"]),
        (lambda: RayCluster(CONFIG, True, -1), ["activation_timeout_seconds", "-1"]),
        (lambda: RayCluster(CONFIG, True, "60"), ["activation_timeout_seconds", "'60'"]),  # type: ignore[arg-type]
        (lambda: RayCluster(CONFIG, 600), ["forward_logs", "600"]),  # type: ignore[arg-type]
    ],
)
def test_a_wrong_value_is_a_value_error_of_one_plain_sentence(make, named):
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - callers rely on this very type
        make()
    message = str(caught.value)
    assert len(message.splitlines()) == 1
    assert [part for part in named if part not in message] == []
    for word in ("validation error", "pydantic", "http", "input_value"):
        assert word not in message
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__ or caught.value.__context__ is None


# Dataclasses


def test_configs_are_dataclasses():
    assert [field.name for field in dataclasses.fields(RayNodeConfig)][:3] == [
        "cpu",
        "memory_gb",
        "gpu_count",
    ]
    defaults = {field.name: field.default for field in dataclasses.fields(ScalingGroup)}
    assert (defaults["min_workers"], defaults["max_workers"]) == (1, 1)
    assert defaults["worker_nodes"] is dataclasses.MISSING
    assert dataclasses.replace(SMALL, cpu=8, memory_gb=32, gpu_count=1) == LARGE
    config = RayClusterConfig(SMALL, [ScalingGroup(LARGE)])
    as_dict = dataclasses.asdict(config)
    assert as_dict["head_node"]["memory_gb"] == 2
    assert as_dict["scaling_groups"][0]["worker_nodes"]["gpu_count"] == 1
    with pytest.raises(ValueError, match="memory_gb"):
        dataclasses.replace(SMALL, memory_gb=0)


@pytest.mark.parametrize(
    ("made", "field"),
    [(SMALL, "cpu"), (ScalingGroup(SMALL), "min_workers"), (AUTOSCALER, "cpu"), (CONFIG, "x")],
)
def test_a_config_cannot_be_assigned_to(made, field):
    with pytest.raises(dataclasses.FrozenInstanceError, match=field):
        setattr(made, field, 1)


def test_a_cluster_is_a_frozen_dataclass_too(target):
    cluster = RayCluster(CONFIG, name="mine")
    with pytest.raises(dataclasses.FrozenInstanceError):
        cluster.config = CONFIG  # type: ignore[misc]
    other = dataclasses.replace(cluster, forward_logs=False)
    assert (other.config, other.name, other.forward_logs) == (CONFIG, "mine", False)
    assert other.id != cluster.id
    assert dataclasses.asdict(cluster)["config"]["head_node"]["cpu"] == 1
    assert target.calls == []


@pytest.mark.parametrize("stack", [3, None, CONFIG])
def test_what_is_not_a_stack_is_refused_with_what_would_be(stack):
    with pytest.raises(ValueError, match="stack must be"):
        RayCluster.from_stack(stack)


@dataclass(frozen=True)
class RackedNode(RayNodeConfig):
    """A config with a field of the program's own."""

    rack: str = "a"


class NamedNode(RayNodeConfig):
    """A config with a method of the program's own."""

    def describe(self) -> str:
        return f"{self.cpu:g} CPUs"


def test_a_config_can_be_subclassed_and_still_checks():
    racked = RackedNode(2, 4, rack="b")
    assert (racked.cpu, racked.gpu_count, racked.rack) == (2, 0, "b")
    assert NamedNode(2, 4).describe() == "2 CPUs"
    assert RackedNode(vm_size="d4s_v5").vm_size == "Standard_D4s_v5"
    config = SimpleRayCluster(2, racked)
    assert config.head_node is racked
    for kind in (RackedNode, NamedNode):
        with pytest.raises(ValueError, match="memory_gb"):
            kind(2, 1)


@dataclass(frozen=True)
class CountedCluster(RayCluster):
    """A cluster with a field of the program's own."""

    seen: list = dataclasses.field(default_factory=list)

    def __enter__(self):
        self.seen.append("enter")
        return super().__enter__()


@pytest.mark.usefixtures("fake_ray")
def test_a_cluster_can_be_subclassed(target):
    with CountedCluster(CONFIG, seen=["before"]) as cluster:
        assert cluster.seen == ["before", "enter"]
        assert target.calls == ["up 900"]
    assert target.calls == ["up 900", "down"]
    with pytest.raises(ValueError, match="config"):
        CountedCluster()


# What a node may be


def test_a_node_may_have_no_cpu_for_tasks():
    assert RayNodeConfig(cpu=0, memory_gb=2).cpu == 0


def test_true_is_not_a_number_of_gpus():
    with pytest.raises(ValueError, match="gpu_count"):
        RayNodeConfig(1, 2, True)


# The cluster's life


@pytest.mark.usefixtures("fake_ray", "target")
def test_a_cluster_has_an_id_and_a_status_that_follows_its_life():
    cluster = RayCluster(CONFIG)
    assert uuid.UUID(hex=cluster.id).hex == cluster.id
    assert cluster.status.state is ResourceState.CREATED
    with cluster as inside:
        assert inside is cluster
        assert cluster.status.state is ResourceState.ACTIVE
        assert "ready" in cluster.status.message
    assert cluster.status.state is ResourceState.DEACTIVATED
    assert (cluster.state, cluster.message) == (cluster.status.state, cluster.status.message)


def test_a_ray_that_is_initialised_already_is_refused_with_the_reason(target, fake_ray):
    fake_ray.initialized = True
    cluster = RayCluster(CONFIG, name="mine")
    with pytest.raises(SunspotError, match=r"not to cluster mine.*ray\.shutdown\(\)"):
        cluster.__enter__()
    assert target.calls == []
