"""Names that something else has, Secrets that nobody made, bad patches: refused at once."""

from __future__ import annotations

import pytest
from cli_runs import failed, run
from kubernetes_stacks import FILE
from test_kubernetes_refusals import assert_refused


@pytest.mark.parametrize("kind", ["RayJob", "RayService"])
def test_something_else_that_kuberay_would_call_alike(kubernetes, kind):
    plural = f"{kind.lower()}s"
    where = f"/apis/ray.io/v1/namespaces/default/{plural}/mine"
    kubernetes.api.add(where, {"metadata": {"name": "mine"}})
    # Its token's, which is not to be deleted.
    secret = "/api/v1/namespaces/default/secrets/mine-token"
    kubernetes.api.add(secret, {"metadata": {"name": "mine-token"}})
    said = failed(2, "up", "mine")
    assert f"{kind}: namespace default has a {kind} 'mine' already" in said
    assert f"kubectl delete {kind.lower()} mine --namespace default" in said
    assert "delete secret" not in said
    assert kubernetes.api.names("rayclusters") == []


def test_secrets_that_are_not_there(kubernetes):
    keys = "{token_secret: tok, image_pull_secrets: [registry]}"
    kubernetes.write(f"{FILE}  sunspot:kubernetes: {keys}\n")
    told = run("doctor", "mine")
    said = " ".join((told.stdout + told.stderr).split())
    assert told.exit_code == 1
    assert "has no Secret 'tok' with the key auth_token" in said
    assert "has no Secret 'registry', so images are pulled without it" in said
    assert "has no Secret 'tok'" in (refused := failed(2, "up", "mine"))
    assert "deleting" not in refused


def test_a_budget_that_a_cluster_by_its_manifest_left(kubernetes):
    where = "/apis/policy/v1/namespaces/default/poddisruptionbudgets/mine-head"
    kubernetes.api.add(where, {"metadata": {"name": "mine-head"}})
    assert_refused(kubernetes, "'mine-head' already", "kubectl delete pdb mine-head")
    (kubernetes.project / "job").mkdir()
    done = run("run", "mine", "--working-dir", "job", "--", "true")  # which makes none
    assert done.exit_code == 0, done.output


@pytest.mark.parametrize(
    "spec",
    [
        "{containers: [{name: ray, resources: {requests: {ephemeral-storage: 10GB}}}]}",
        "{tolerations: {key: a}}",
        "{nodeSelector: gpu}",
    ],
)
def test_a_patch_that_the_api_server_refuses_is_told_as_it_says(kubernetes, spec):
    kubernetes.write(f"{FILE}  sunspot:kubernetes: {{patch: {{spec: {spec}}}}}\n")
    kubernetes.api.troubles = {("POST", "rayclusters"): [400]}
    assert "400" in failed(2, "up", "mine")
