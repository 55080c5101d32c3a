"""`RayCluster` on Azure from a laptop: a stand-in for Pulumi, real sshd, real ssh, real Ray.

The body's driver reaches the head through Ray Client and the SSH tunnel.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import far_head
import pytest
import ray
from harness import Sunspot
from ssh_server import needs_sshd

from sunspot import RayCluster, stack
from sunspot.cluster import ExternalResourceError

pytestmark = needs_sshd


@pytest.fixture(scope="module")
def head(tmp_path_factory: pytest.TempPathFactory) -> Iterator[far_head.Head]:
    with far_head.head(tmp_path_factory.mktemp("head")) as head:
        yield head


@pytest.fixture
def project(
    in_the_home: Sunspot, head: far_head.Head, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[None]:
    with far_head.project(head, tmp_path, monkeypatch):
        yield


@ray.remote
def square(number: int) -> int:
    return number * number


def test_a_body_runs_on_a_head_that_only_ssh_reaches(project: None) -> None:
    with RayCluster.from_stack("far") as cluster:
        assert cluster.handle.target == "azure"
        assert ray.get([square.remote(i) for i in range(5)]) == [0, 1, 4, 9, 16]
    assert not ray.is_initialized()


def test_a_config_runs_with_the_settings_of_the_stack_file_of_its_name(project: None) -> None:
    config = stack.load("far").cluster
    with RayCluster(config=config, target="azure", name="far"):
        assert ray.get(square.remote(3)) == 9


def test_another_python_is_refused_with_both_versions(
    project: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ray.util.client import worker

    real = worker.Worker.connection_info
    monkeypatch.setattr(
        worker.Worker, "connection_info", lambda self: real(self) | {"python_version": "3.10.4"}
    )
    here = f"{sys.version_info.major}.{sys.version_info.minor}"
    with pytest.raises(ExternalResourceError, match=r"3\.10\.4") as caught:
        RayCluster.from_stack("far").__enter__()
    assert here in str(caught.value)
