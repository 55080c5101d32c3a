"""The AKS program's objects in a real API server: as Pulumi's engine has them applied, strictly.

AKS itself and the Helm release are stand-ins here; the operator that answers is the tests' own.
"""

from __future__ import annotations

import os
import secrets
from pathlib import Path

import pytest
from azure_model.cloud import KUBECONFIG_FILE
from machines.kubernetes.cluster import Cluster
from machines.processes import DEADLINE_S
from machines.pulumi_project import Project, engine_folder
from waiting import wait_for

STACK = "k"
PLUGIN = ("nvidia-device-plugin", "-n", "kube-system")
NEEDED = "SUNSPOT_TESTS_NEED_ENGINE"


def settings(namespace: str, *, most: int) -> dict:
    return {
        "azure-native:location": "uksouth",
        "sunspot:target": "kubernetes",
        "sunspot:aks": {"authorized_ip_ranges": ["203.0.113.7/32"]},
        "sunspot:kubernetes": {"namespace": namespace, "gcs_fault_tolerance": {}},
        "sunspot:storage": {"protect": False},
        "sunspot:cluster": {
            "head_node": {"vm_size": "Standard_D4s_v5"},
            "scaling_groups": [
                {
                    "name": "cpu",
                    "market": "spot",
                    "min_workers": 0,
                    "max_workers": most,
                    "worker_nodes": {"vm_size": "Standard_D4s_v5"},
                },
                {
                    "name": "gpu",
                    "market": "spot",
                    "min_workers": 0,
                    "max_workers": 1,
                    "worker_nodes": {"vm_size": "Standard_NC4as_T4_v3"},
                },
            ],
            "autoscaler_config": {"cpu": 0.5, "memory_gb": 1},
        },
    }


@pytest.fixture
def project(kubernetes: Cluster, tmp_path: Path) -> Project:
    engine = engine_folder()
    if engine is None:
        reason = "Pulumi's CLI is not here: install it, or build it by scripts/engine/build.sh"
        # Where nothing may be left out.
        pytest.fail(reason) if os.environ.get(NEEDED) else pytest.skip(reason)
    made = Project.create(tmp_path / "project", engine)
    kubeconfig = kubernetes.kubeconfig.read_text()
    (made.folder / "azure" / KUBECONFIG_FILE).write_text(kubeconfig)
    return made


def test_up_and_an_edit(kubernetes: Cluster, project: Project):
    # The program makes the namespace, so it is not one of the fixtures'.
    namespace = f"test-aks-{secrets.token_hex(3)}"
    project.write_stack(STACK, settings(namespace, most=2))
    project.pulumi("stack", "init", STACK)
    try:
        project.up(STACK)
        found = ray_cluster(kubernetes, namespace)
        uid, token = found["metadata"]["uid"], token_of(kubernetes, namespace)
        assert found["spec"]["workerGroupSpecs"][0]["maxReplicas"] == 2
        assert len(token) > 40
        assert kubernetes.kubectl.get("pvc", f"{STACK}-gcs-pvc", "-n", namespace)["spec"]
        selector = {"app.kubernetes.io/name": "nvidia-device-plugin"}
        plugin = kubernetes.kubectl.get("daemonset", *PLUGIN)
        assert plugin["spec"]["selector"]["matchLabels"] == selector
        # As the Ray autoscaler does, by a patch of its own.
        replicas = '[{"op": "replace", "path": "/spec/workerGroupSpecs/0/replicas", "value": 1}]'
        kubernetes.kubectl(
            "patch", "raycluster", STACK, "-n", namespace, "--type=json", "-p", replicas
        )
        wait_for("its pod", lambda: workers(kubernetes, namespace), DEADLINE_S, poll_s=0.5)
        made = workers(kubernetes, namespace)
        project.write_stack(STACK, settings(namespace, most=3))
        project.up(STACK)
        after = ray_cluster(kubernetes, namespace)
        assert after["metadata"]["uid"] == uid
        assert after["spec"]["workerGroupSpecs"][0]["maxReplicas"] == 3
        assert token_of(kubernetes, namespace) == token
        assert workers(kubernetes, namespace) == made
    finally:
        kubernetes.kubectl.run("delete", "namespace", namespace, "--wait=false")
        kubernetes.kubectl.run("delete", "daemonset", *PLUGIN)


def ray_cluster(kubernetes: Cluster, namespace: str) -> dict:
    return kubernetes.kubectl.get("raycluster", STACK, "-n", namespace)


def workers(kubernetes: Cluster, namespace: str) -> list[str]:
    """The uids of the workers' pods, for which there is no node here."""
    of_group = ("--namespace", namespace, "--selector", "ray.io/group=cpu")
    return [one["metadata"]["uid"] for one in kubernetes.kubectl.items("pods", *of_group)]


def token_of(kubernetes: Cluster, namespace: str) -> str:
    return kubernetes.kubectl.get("secret", f"{STACK}-token", "-n", namespace)["data"]["auth_token"]
