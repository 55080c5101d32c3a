"""A real Kubernetes with KubeRay's operator as a site of the contract: real Ray."""

from __future__ import annotations

from pathlib import Path

from machines.kubernetes.cluster import Kubectl
from ray_clusters import SMALL_AUTOSCALER, SMALL_HEAD, SMALL_WORKER
from sites import Site, folders

from sunspot.targets.kubernetes.records import FILE, Records
from sunspot.targets.kubernetes.target import KubernetesTarget
from sunspot.targets.records import Folders

STAGES = ("created the RayCluster", "the head is up")

KINDS = (
    "rayclusters,pods,secrets,poddisruptionbudgets,services,persistentvolumeclaims,"
    "serviceaccounts,roles,rolebindings"
)
# Kubernetes puts it into each namespace.
GIVEN = "serviceaccount/default"


def kubernetes_site(root: Path, kubectl: Kubectl, namespace: str) -> Site:
    """The site, in `root` and in a namespace of its own.

    Args:
        root: an empty folder.
        kubectl: who uses it.
        namespace: the namespace.
    """
    workers = {
        "name": "workers",
        "market": "spot",
        "min_workers": 1,
        "max_workers": 2,
        "worker_nodes": SMALL_WORKER,
    }
    return Site(
        place=KubernetesTarget(Records(Folders(root / "state" / "kubernetes"))),
        **folders(root),
        cluster={
            "head_node": SMALL_HEAD,
            "scaling_groups": [workers],
            "autoscaler_config": SMALL_AUTOSCALER,
            "ray_version": "2.60.0",
        },
        config={"sunspot:kubernetes": {"namespace": namespace, "spot_nodes": {}}},
        stages=STAGES,
        records="kubernetes",
        record_file=FILE,
        variables={"KUBECONFIG": str(kubectl.kubeconfig)},
        elsewhere=lambda: _objects(kubectl, namespace),
    )


def _objects(kubectl: Kubectl, namespace: str) -> list[str]:
    found = kubectl("get", KINDS, "-n", namespace, "--output=name").splitlines()
    return [one for one in found if one != GIVEN]
