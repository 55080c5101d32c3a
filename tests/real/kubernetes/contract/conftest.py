"""The site of the contract that a real Kubernetes is."""

from __future__ import annotations

import secrets
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from machines.kubernetes.cluster import Cluster as Kubernetes

# The contract's tests and what they share.
for folder in ("contract", "real/kubernetes"):
    if (path := str(Path(__file__).parents[3] / folder)) not in sys.path:
        sys.path.append(path)

import sites  # noqa: E402
from kubernetes_site import STAGES, kubernetes_site  # noqa: E402
from sites import Cluster, Site  # noqa: E402


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    sites.parametrize(metafunc, {"kubernetes": STAGES}, {})


@pytest.fixture(scope="session")
def site(kubernetes: Kubernetes, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    root = tmp_path_factory.mktemp("kubernetes") / "root"
    root.mkdir()
    namespace = f"contract-{secrets.token_hex(3)}"
    kubernetes.kubectl("create", "namespace", namespace)
    made = kubernetes_site(root, kubernetes.kubectl, namespace)
    made.prepare()
    yield made
    kubernetes.kubectl("delete", "namespace", namespace, "--wait=false")


@pytest.fixture(scope="session")
def cluster(site: Site) -> Iterator[Cluster]:
    """The cluster that most tests share. One of the last tests takes it down."""
    yield from sites.shared_cluster(site)
