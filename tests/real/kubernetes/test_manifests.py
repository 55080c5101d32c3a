"""Every kind of manifest as the API server takes it: an unknown field is an error."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from kubernetes_stacks import KINDS, NEWER, group, stack
from machines.kubernetes import KUBERAY
from machines.kubernetes.cluster import Cluster
from machines.processes import StepError

from sunspot import stack as stacks
from sunspot.stack import Stack
from sunspot.targets.kubernetes import manifest

ROOT = Path(__file__).resolve().parents[3]
CRD = "ray.io_rayclusters.yaml"
NEWER_CRD = ROOT.parent / "shared" / "kuberay" / CRD

needs_newer_crd = pytest.mark.skipif(
    not NEWER_CRD.is_file(), reason="the CRDs of KubeRay 1.7 are not beside the code"
)


@pytest.fixture(scope="module", autouse=True)
def namespaces(kubernetes: Cluster) -> Iterator[None]:
    """Those that the stacks name."""
    called = {document["metadata"]["namespace"] for one in KINDS.values() for document in _of(one)}
    own = sorted(called - {"default"})
    for name in own:
        kubernetes.kubectl("create", "namespace", name)
    yield
    kubernetes.kubectl("delete", "namespace", *own)


@pytest.fixture
def newer_crd(kubernetes: Cluster) -> Iterator[None]:
    """KubeRay 1.7's RayCluster, in place of that of the operator that can be built here."""
    kubernetes.kubectl("replace", f"--filename={NEWER_CRD}")
    yield
    kubernetes.kubectl("replace", f"--filename={KUBERAY / 'crds' / CRD}")


def _of(described: Stack) -> list[dict]:
    return list(yaml.safe_load_all(manifest.text(described)))


def _accepted(kubernetes: Cluster, text: str) -> None:
    words = ("apply", "--dry-run=server", "--validate=strict", "--filename=-")
    kubernetes.kubectl(*words, stdin=text)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in NEWER])
def test_a_manifest_is_accepted(kubernetes: Cluster, kind: str):
    _accepted(kubernetes, manifest.text(KINDS[kind]))
    _accepted(kubernetes, manifest.rights_text(KINDS[kind]))


@needs_newer_crd
def test_what_needs_kuberay_1_7_is_accepted_by_its_crd_only(kubernetes: Cluster, newer_crd: None):
    for kind in NEWER:
        _accepted(kubernetes, manifest.text(KINDS[kind]))


@pytest.mark.parametrize("kind", NEWER)
def test_kuberay_1_6_refuses_what_it_does_not_know(kubernetes: Cluster, kind: str):
    with pytest.raises(StepError, match="unknown field"):
        _accepted(kubernetes, manifest.text(KINDS[kind]))


@pytest.mark.parametrize("name", stacks.names(ROOT))
def test_the_manifest_of_every_stack_of_the_project_is_accepted(kubernetes: Cluster, name: str):
    described = stacks.load(name, ROOT).for_target("kubernetes")
    _accepted(kubernetes, manifest.text(described))


def test_a_ray_service_is_accepted(kubernetes: Cluster):
    elastic = group("spot", minimum=0, maximum=3, market="spot")
    _accepted(kubernetes, manifest.served_text(stack(elastic), "main:app"))


def test_a_slip_is_refused(kubernetes: Cluster):
    """The check itself."""
    (made, *_) = _of(stack(group()))
    made["spec"]["workerGroupSpecs"][0]["replicsa"] = 1
    with pytest.raises(StepError, match="replicsa"):
        _accepted(kubernetes, yaml.safe_dump(made))
