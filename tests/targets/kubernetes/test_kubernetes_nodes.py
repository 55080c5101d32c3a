"""Where the pods of a manifest run, and what they get of their nodes."""

from __future__ import annotations

import pytest
from kubernetes_stacks import cluster, group, groups, head_pod, worker_pod

SPOT = group(minimum=0, maximum=3, market="spot")
GPU = group("gpu", gpu_count=2)


CPU_NODES = {
    "node_selector": {"pool": "cpu", "arch": "amd64"},
    "tolerations": [
        {"key": "team", "value": "ml", "effect": "NoSchedule"},
        {"key": "batch", "operator": "Exists"},
    ],
    "labels": {"cost": "cpu"},
    "annotations": {"note": "of CPU nodes"},
}
GPU_NODES = {"node_selector": {"pool": "gpu"}, "labels": {"cost": "gpu"}}


def test_nodes_with_and_without_gpus_have_selectors_and_tolerations_of_their_own():
    made = cluster(group("cpu"), GPU, cpu_nodes=CPU_NODES, gpu_nodes=GPU_NODES)
    for pod in (head_pod(made), worker_pod(made)):
        assert pod["nodeSelector"] == {"pool": "cpu", "arch": "amd64"}
        assert pod["tolerations"] == [
            {"key": "team", "operator": "Equal", "value": "ml", "effect": "NoSchedule"},
            {"key": "batch", "operator": "Exists"},
        ]
    assert worker_pod(made, 1)["nodeSelector"] == {"pool": "gpu"}
    assert "tolerations" not in worker_pod(made, 1)
    metadata = [one["template"]["metadata"] for one in groups(made).values()]
    assert metadata == [
        {"labels": {"cost": "cpu"}, "annotations": {"note": "of CPU nodes"}},
        {"labels": {"cost": "gpu"}},
    ]


def test_only_spot_groups_go_to_spot_nodes_which_are_akss_by_default():
    made = cluster(SPOT, group("fixed"))
    spot, fixed = worker_pod(made), worker_pod(made, 1)
    # learn.microsoft.com/azure/aks/spot-node-pool
    key = "kubernetes.azure.com/scalesetpriority"
    assert spot["nodeSelector"] == {key: "spot"}
    assert spot["tolerations"] == [
        {"key": key, "operator": "Equal", "value": "spot", "effect": "NoSchedule"}
    ]
    assert not {"nodeSelector", "tolerations"} & set(fixed)
    elsewhere = worker_pod(cluster(SPOT, spot_nodes={"node_selector": {"life": "spot"}}))
    assert elsewhere["nodeSelector"] == {"life": "spot"}
    assert "tolerations" not in elsewhere


def test_a_group_adds_to_what_its_nodes_have():
    made = cluster(
        group("a"),
        group("b"),
        cpu_nodes=CPU_NODES,
        groups={"a": {"node_selector": {"arch": "arm64", "zone": "1"}}},
    )
    assert worker_pod(made)["nodeSelector"] == {"pool": "cpu", "arch": "arm64", "zone": "1"}
    assert worker_pod(made, 1)["nodeSelector"] == {"pool": "cpu", "arch": "amd64"}


def test_the_gpus_are_asked_for_by_the_plugins_name():
    made = cluster(GPU, gpu_key="amd.com/gpu", image={"reference": "rocm:1"})
    assert worker_pod(made)["containers"][0]["resources"]["limits"]["amd.com/gpu"] == "2"
    assert made["spec"]["workerGroupSpecs"][0]["rayStartParams"]["num-gpus"] == "2"


def test_accounts_and_pull_secrets_are_every_pods():
    made = cluster(SPOT, service_account="blobs", image_pull_secrets=["one", "two"])
    for pod in (head_pod(made), worker_pod(made)):
        assert pod["serviceAccountName"] == "blobs"
        assert pod["imagePullSecrets"] == [{"name": "one"}, {"name": "two"}]


@pytest.mark.parametrize(("given", "expected"), [(None, "8192Mi"), ("3Gi", "3Gi")])
def test_shared_memory_is_half_of_the_memory_or_as_asked(given, expected):
    pod = worker_pod(cluster(group(memory_gb=16), **({"shared_memory": given} if given else {})))
    volume = next(one for one in pod["volumes"] if one["name"] == "shared-mem")
    assert volume["emptyDir"] == {"medium": "Memory", "sizeLimit": expected}
    mounts = {one["name"]: one["mountPath"] for one in pod["containers"][0]["volumeMounts"]}
    assert mounts == {"shared-mem": "/dev/shm", "ray-logs": "/tmp/ray"}  # noqa: S108


# learn.microsoft.com/azure/aks/node-resource-reservations, in thousandths of a CPU.
ALLOCATABLE_ON_AKS = {
    "Standard_D2s_v5": 2000 - 100,
    "Standard_D4s_v5": 4000 - 140,
    "Standard_D8s_v5": 8000 - 180,
    "Standard_D16s_v5": 16000 - 260,
    "Standard_NC64as_T4_v3": 64000 - 740,
}
# cloud-node-manager, kube-proxy, azure-cns, azure-ip-masq-agent and the two CSI drivers.
AKS_OWN_PODS = 50 + 100 + 40 + 100 + 30 + 30


@pytest.mark.parametrize(("size", "allocatable"), ALLOCATABLE_ON_AKS.items())
def test_the_pod_of_a_vm_size_fits_on_a_node_of_aks_of_that_size(size, allocatable):
    pod = worker_pod(cluster(group(vm_size=size)))
    asked = pod["containers"][0]["resources"]["requests"]["cpu"]
    assert int(asked.removesuffix("m")) <= allocatable - AKS_OWN_PODS


# In KiB, of nodes on AKS by the GiB of their VM size (Azure/AKS#3525, UCL/TLOmodel#1356).
CAPACITY_ON_AKS = {4: 4025836, 16: 16375056}


@pytest.mark.parametrize("max_pods", [30, 110, 250])
@pytest.mark.parametrize(("memory_gb", "capacity"), CAPACITY_ON_AKS.items())
def test_its_memory_does_too_however_many_pods_the_node_may_have(memory_gb, capacity, max_pods):
    mib = capacity / 1024
    kubelet = min(20 * max_pods + 50, mib / 4) + 100
    own_pods = 750e6 / 2**20  # Azure/AKS#3525
    node = {"vm_size": "Standard_X2", "cpu": 2, "memory_gb": memory_gb, "gpu_count": 0}
    pod = worker_pod(cluster(group(**node), max_pods=max_pods))
    asked = int(pod["containers"][0]["resources"]["requests"]["memory"].removesuffix("Mi"))
    free = mib - kubelet - own_pods
    assert free - 0.05 * mib < asked <= free
