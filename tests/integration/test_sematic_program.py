"""A program as one writes it for Sematic's Ray integration, on a real cluster."""

from __future__ import annotations

import pytest
from harness import Sunspot, what_is_left

from sunspot import RayCluster, RayClusterConfig, RayNodeConfig, ScalingGroup
from sunspot.cluster import ExternalResourceError, ResourceState

pytestmark = pytest.mark.usefixtures("in_the_home")


def test_unnamed_groups_and_a_head_without_cpus(in_the_home: Sunspot):
    import ray

    @ray.remote
    def add(a: int, b: int) -> tuple[int, str]:
        return a + b, ray.get_runtime_context().get_node_id()

    groups = [ScalingGroup(RayNodeConfig(1, 2), 1, 1), ScalingGroup(RayNodeConfig(2, 2), 1, 1)]
    config = RayClusterConfig(RayNodeConfig(0, 2), groups)
    with RayCluster(config, False, 600) as cluster:
        assert cluster.status.state is ResourceState.ACTIVE
        names = {node["NodeID"]: node["NodeName"] for node in ray.nodes()}
        assert sorted(names.values()) == ["head", "workers-0", "workers-2-0"]
        assert ray.cluster_resources()["CPU"] == 3
        results = ray.get([add.remote(n, 2) for n in range(6)], timeout=300)
        assert [total for total, _ in results] == [2, 3, 4, 5, 6, 7]
        assert "head" not in {names[node] for _, node in results}
    assert not ray.is_initialized()
    assert cluster.status.state is ResourceState.DEACTIVATED
    assert what_is_left(in_the_home.folder(cluster.name)) == []


def test_a_timeout_that_is_too_short_names_the_step(in_the_home: Sunspot):
    config = RayClusterConfig(RayNodeConfig(1, 2))
    cluster = RayCluster(config, True, 0.01, name="hasty")
    with pytest.raises(ExternalResourceError, match=r"hasty.*the last step was: [a-z]+") as caught:
        cluster.__enter__()
    assert "none" not in str(caught.value)
    assert what_is_left(in_the_home.folder("hasty")) == []
