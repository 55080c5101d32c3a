"""A real cluster for all tests, namespaces of it for each, and a Ray cluster that some share."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from kubernetes_stacks import group, stack
from machines.kubernetes import needed
from machines.kubernetes.cluster import RUNNING, Cluster, cluster
from ray_clusters import SMALL_AUTOSCALER, SMALL_HEAD, SMALL_WORKER, RayCluster

TIMEOUT_S = 900

Namespaces = Callable[[], str]


def pytest_itemcollected(item: pytest.Item) -> None:
    item.add_marker(pytest.mark.timeout(TIMEOUT_S))


@pytest.fixture(scope="session")
def kubernetes() -> Iterator[Cluster]:
    """The one that runs already, where the environment names it."""
    if folder := os.environ.get(RUNNING):
        yield Cluster(Path(folder))
        return
    needed.need()
    with cluster() as made:
        yield made


@pytest.fixture(scope="module")
def new_namespace(kubernetes: Cluster) -> Iterator[Namespaces]:
    """Makes namespaces, which go with the module's last test."""
    made: list[str] = []

    def make() -> str:
        made.append(f"test-{secrets.token_hex(3)}")
        kubernetes.kubectl("create", "namespace", made[-1])
        return made[-1]

    yield make
    if made:
        kubernetes.kubectl("delete", "namespace", *made, "--wait=false")


@pytest.fixture
def namespace(new_namespace: Namespaces) -> str:
    return new_namespace()


@pytest.fixture(scope="module")
def ray_cluster(kubernetes: Cluster, new_namespace: Namespaces) -> RayCluster:
    """A Ray cluster that is ready, with a group of up to three workers and none of them yet."""
    workers = {**group(minimum=0, maximum=3, market="spot"), "worker_nodes": SMALL_WORKER}
    described = stack(
        workers,
        head=SMALL_HEAD,
        autoscaler=SMALL_AUTOSCALER,
        namespace=new_namespace(),
        spot_nodes={},
        idle_timeout_s=15,
    )
    made = RayCluster.of(described, kubernetes.kubectl)
    made.make_token()
    made.apply()
    made.wait_until_ready()
    return made
