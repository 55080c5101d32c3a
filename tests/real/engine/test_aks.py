"""A stack on AKS under the real engine: up, an edit, a destroy that leaves nothing.

Azure and Kubernetes' provider are stand-ins; the Helm release is only written down.
"""

import json
from collections.abc import Mapping, Sequence

import pytest
from azure_model.pulumi_wire import opened
from kubernetes_model import provider
from machines.pulumi_project import Project
from stack_settings import KEPT

pytestmark = pytest.mark.timeout(900)

STACK = "k"


RANGE = "203.0.113.7/32"


def settings(
    *,
    most: int = 4,
    head: str = "Standard_D4s_v5",
    gpu: str = "Standard_NC4as_T4_v3",
    ranges: Sequence[str] = (RANGE,),
) -> dict:
    return {
        "azure-native:location": "uksouth",
        "sunspot:target": "kubernetes",
        "sunspot:aks": {"authorized_ip_ranges": list(ranges)},
        "sunspot:cluster": {
            "head_node": {"vm_size": head},
            "scaling_groups": [
                {
                    "name": "gpu",
                    "market": "spot-with-fallback",
                    "min_workers": 0,
                    "max_workers": most,
                    "worker_nodes": {"vm_size": gpu},
                }
            ],
            "autoscaler_config": {"cpu": 0.5, "memory_gb": 1},
        },
    }


@pytest.fixture(scope="module")
def aks(empty: Project, tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A project whose stack is up. Not to be changed."""
    made = empty.copied(tmp_path_factory.mktemp("aks") / "project")
    made.write_stack(STACK, settings())
    made.pulumi("stack", "init", STACK)
    made.pulumi("up", "-s", STACK, "--yes")
    made.cloud.take_notes()
    return made


@pytest.fixture
def project(aks: Project, tmp_path) -> Project:
    copied = aks.copied(tmp_path / "project")
    (copied.kubernetes / provider.LOG_FILE).unlink()
    return copied


def objects(project: Project) -> Mapping[str, dict]:
    return json.loads((project.kubernetes / "objects.json").read_text())


def ray_cluster(project: Project) -> dict:
    return objects(project)["/apis/ray.io/v1/namespaces/default/rayclusters/k"]


def asked(project: Project) -> dict[str, str]:
    """What was asked of Azure and of Kubernetes: name in the program -> operation."""
    both = [*project.cloud.take_notes(), *provider.notes(project.kubernetes)]
    return {name: operation for operation, name in both}


def test_kubernetes_gets_the_cluster_and_all_that_it_refers_to(aks: Project):
    kinds = sorted(one["kind"] for one in objects(aks).values())
    assert kinds == [
        "DaemonSet",
        "PodDisruptionBudget",
        "RayCluster",
        "Secret",
        "ServiceAccount",
        "ServiceAccount",
    ]
    (release,) = json.loads((aks.kubernetes / provider.RELEASES_FILE).read_text()).values()
    assert (release["chart"], release["version"]) == ("kuberay-operator", "1.7.0")
    secret = objects(aks)["/api/v1/namespaces/default/secrets/k-token"]["data"]["auth_token"]
    for file in (aks.folder / "state").rglob("*"):
        assert not file.is_file() or secret not in file.read_text(errors="replace")
    assert secret not in json.dumps(aks.json("stack", "output", "-s", STACK))
    assert ray_cluster(aks)["spec"]["authOptions"]["secretName"] == "k-token"


def test_up_again_changes_nothing_though_azure_tells_of_more_pools(project: Project):
    project.up(STACK, "--expect-no-changes")
    assert asked(project) == {}


def test_another_maximum_and_address_update_what_is_there_in_place(project: Project):
    before = project.cloud.resources()
    token = objects(project)["/api/v1/namespaces/default/secrets/k-token"]
    project.write_stack(STACK, settings(most=6, ranges=[RANGE, "203.0.113.8/32"]))
    project.up(STACK)
    assert asked(project) == {
        "sunspot-k-aks": "update",
        "sunspot-k-pool-gpu": "update",
        "sunspot-k-pool-gpu-on-demand": "update",
        "sunspot-k-raycluster": "update",
    }
    assert set(project.cloud.resources()) == set(before)
    pools = [r["inputs"] for r in project.cloud.resources().values() if r["kind"] == "AgentPool"]
    assert sorted(opened(pool)["maxCount"] for pool in pools) == [2, 6, 6]
    assert {g["maxReplicas"] for g in ray_cluster(project)["spec"]["workerGroupSpecs"]} == {6}
    assert objects(project)["/api/v1/namespaces/default/secrets/k-token"] == token


def test_what_the_autoscaler_did_is_not_undone(project: Project):
    (pool,) = [i for i in project.cloud.resources() if i.endswith("/agentPools/gpu")]
    project.cloud.change(pool, "count", 3)
    project.write_stack(STACK, settings(most=6))
    project.up(STACK)
    assert opened(project.cloud.resources()[pool]["inputs"])["count"] == 3


def test_another_size_makes_only_its_pools_again(project: Project):
    # As docs/aks.md says of the head's: with its budget, AKS would not drain the node.
    kept = {path: one for path, one in objects(project).items() if "/poddisruption" not in path}
    (project.kubernetes / "objects.json").write_text(json.dumps(kept))
    project.write_stack(STACK, settings(head="Standard_D8s_v5", gpu="Standard_NC8as_T4_v3"))
    project.up(STACK)
    notes = project.cloud.take_notes()
    pools = {f"sunspot-k-pool-{name}" for name in ("head", "gpu", "gpu-on-demand")}
    assert sorted(notes) == sorted((o, name) for o in ("create", "delete") for name in pools)
    for name in pools:
        assert notes.index(("delete", name)) < notes.index(("create", name))
    assert asked(project) == {
        "sunspot-k-poddisruptionbudget": "create",
        "sunspot-k-raycluster": "update",
    }


def test_destroy_leaves_what_is_protected_or_nothing_and_needs_no_api_server(project: Project):
    (project.kubernetes / provider.UNREACHABLE).touch()
    destroy = ("destroy", "-s", STACK, "--yes", "--skip-preview", "--refresh=false")
    project.pulumi(*destroy, "--exclude-protected")
    assert {resource["kind"] for resource in project.cloud.resources().values()} == KEPT
    project.pulumi("state", "unprotect", "--all", "-s", STACK, "--yes")
    project.pulumi(*destroy)
    assert project.cloud.resources() == {}
    # All of it went with its cluster.
    assert list(provider.notes(project.kubernetes)) == []
