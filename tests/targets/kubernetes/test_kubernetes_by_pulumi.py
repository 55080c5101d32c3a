"""A stack file that describes AKS: Pulumi makes and deletes it, the other commands find it."""

from __future__ import annotations

import base64
import json

import job_api
import pytest
from cli_runs import failed, run
from kubernetes_stacks import FILE

from sunspot import stack as stacks
from sunspot.cluster import RayCluster
from sunspot.errors import UsageError
from sunspot.targets.azure.aks.plan import plan

AKS = FILE.replace("{cpu: 2, memory_gb: 4}", "{vm_size: Standard_D4s_v5}").replace(
    "{cpu: 1, memory_gb: 2}", "{vm_size: Standard_D4s_v5}"
)
AKS += """\
  azure-native:location: uksouth
  sunspot:aks: {authorized_ip_ranges: [203.0.113.7/32]}
"""


@pytest.fixture
def aks(kubernetes):
    """The project's stack "mine" describes AKS; nothing is up."""
    kubernetes.write(AKS)
    return kubernetes


@pytest.fixture
def up(aks):
    """Pulumi has made it."""
    root = "/apis/ray.io/v1/namespaces/default/rayclusters"
    made = plan(stacks.load("mine")).manifest[0]
    aks.api.post(root, made, {})
    token = {"auth_token": base64.b64encode(job_api.TOKEN.encode()).decode()}
    aks.api.add(
        "/api/v1/namespaces/default/secrets/mine-token",
        {"metadata": {"name": "mine-token", "labels": made["metadata"]["labels"]}, "data": token},
    )
    return aks


@pytest.mark.parametrize("command", [("up", "mine"), ("run", "mine", "--", "true")])
def test_up_names_pulumis_commands_and_asks_no_kubernetes(aks, command):
    said = failed(2, *command)
    assert "pulumi up -s mine" in said
    assert "sunspot up mine --context CONTEXT" in said
    assert aks.api.seen == []


def test_doctor_looks_at_no_other_kubernetes(aks):
    said = failed(2, "doctor", "mine")
    assert "sunspot preview mine" in said
    assert "sunspot doctor mine --context CONTEXT" in said
    assert aks.api.seen == []
    assert "API server" in run("doctor", "mine", "--context", "here").output


def test_ray_cluster_names_them_too_and_makes_nothing_elsewhere(aks):
    with pytest.raises(UsageError, match="pulumi up -s mine") as caught:
        RayCluster.from_stack("mine")
    assert 'target="kubernetes"' in str(caught.value)
    assert "--context" not in str(caught.value)
    assert aks.api.seen == []
    # Whoever names the target has said that it is to be another Kubernetes.
    assert RayCluster.from_stack("mine", target="kubernetes").name == "mine"


def test_with_a_context_it_is_the_ray_cluster_in_that_kubernetes(aks):
    aks.write(AKS.replace("{vm_size: Standard_D4s_v5}", "{cpu: 1, memory_gb: 4}"))
    done = run("up", "mine", "--context", "here")
    assert done.exit_code == 0, done.output
    assert "mine is down" in run("down", "mine").stdout


def test_down_of_what_is_not_known_here_does_not_say_that_nothing_is_up(aks):
    assert "pulumi destroy --exclude-protected -s mine" in failed(2, "down", "mine")


def test_the_other_commands_find_what_pulumi_made(up):
    found = json.loads(run("status", "mine", "--json").stdout)
    assert found["problem"] is None
    assert [one["state"] for one in found["nodes"]] == ["up", "up"]
    (up.project / "job").mkdir()
    options = ("--context", "here", "--working-dir", "job")
    assert "is up" in failed(2, "run", "mine", *options, "--", "true")
    failed(2, "down", "mine")


def test_what_pulumi_changes_is_known_here_too(up):
    assert run("status", "mine").exit_code == 0
    assert "pulumi up -s mine" in failed(2, "scale", "mine", "workers=4")
    up.write(AKS.replace("max_workers: 3", "max_workers: 4"))
    changed = plan(stacks.load("mine")).manifest[0]
    up.api.one("rayclusters")["metadata"]["annotations"] = changed["metadata"]["annotations"]
    up.api.one("rayclusters")["spec"] = changed["spec"]
    done = run("scale", "mine", "workers=0:4")
    assert done.exit_code == 0, done.output


def test_down_leaves_it_to_pulumi_and_keeps_no_record(up):
    assert run("status", "mine").exit_code == 0
    assert "pulumi destroy --exclude-protected -s mine" in failed(2, "down", "mine")
    assert up.api.deleted == []
    assert not (up.project / "state" / "kubernetes" / "mine").exists()


def test_up_elsewhere_than_in_aks_does_not_offer_to_delete_what_pulumi_deletes(up):
    found = up.api.one("rayclusters")["metadata"]
    found |= {"finalizers": ["foregroundDeletion"], "deletionTimestamp": "2026-01-01T01:00:00Z"}
    said = failed(2, "up", "mine", "--context", "here")
    assert "pulumi destroy --exclude-protected -s mine" in said
    assert "kubectl delete" not in said


def test_down_forgets_it_when_its_api_server_is_gone(up):
    assert run("status", "mine").exit_code == 0
    up.kubeconfig.unlink()
    assert "pulumi destroy --exclude-protected -s mine" in failed(2, "down", "mine")
    assert not (up.project / "state" / "kubernetes" / "mine").exists()
