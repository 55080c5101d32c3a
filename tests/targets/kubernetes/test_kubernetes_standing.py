"""A cluster that is up: `doctor` finds nothing wrong with what is its own."""

from __future__ import annotations

import pytest
from cli_runs import run


def assert_all_well():
    told = run("doctor", "mine")
    assert told.exit_code == 0, told.output
    assert "failure" not in told.output


def test_its_disruption_budget(kubernetes, up):
    kubernetes.api.one("poddisruptionbudgets")["metadata"].pop("ownerReferences")  # as Pulumi's
    assert_all_well()


@pytest.mark.parametrize("owned", [True, False])
def test_the_volume_of_its_state(kubernetes, write, owned):
    write()
    assert run("up", "mine").exit_code == 0
    if not owned:  # as Pulumi's
        kubernetes.api.one("persistentvolumeclaims")["metadata"].pop("ownerReferences")
    assert_all_well()


def test_what_would_change_its_volume_takes_the_cluster_down_first(kubernetes, write):
    write()
    assert run("up", "mine").exit_code == 0
    write(size="20Gi")
    told = run("doctor", "mine")
    assert told.exit_code == 0
    assert "its size is 10Gi, not 20Gi" in told.output
    assert "sunspot down mine --volumes" in told.output
    assert "kubectl delete" not in told.output


def test_a_quota_that_it_fills(kubernetes, up):
    # As Kubernetes counts it: with the head's pod and the worker's.
    has = {"requests.cpu": "3", "pods": "2"}
    quota = {"metadata": {"name": "small"}, "status": {"hard": has, "used": has}}
    kubernetes.api.add("/api/v1/namespaces/default/resourcequotas/small", quota)
    assert_all_well()
    # KubeRay was refused the worker's.
    kubernetes.api.objects.pop("/api/v1/namespaces/default/pods/mine-workers-0")
    told = run("doctor", "mine")
    assert told.exit_code == 1
    assert "leaves 0 pods (pods), and the cluster needs 1 pods" in told.output


def test_a_job_that_fits_on_a_node_but_not_on_what_ray_has_of_it(kubernetes, up):
    """The autoscaler has 1 GiB of the head's 4, and Ray the rest."""
    (kubernetes.project / "job").mkdir()
    asked = ("submit", "--stack", "mine", "--working-dir", "job", "--detach", "--memory")
    refused = run(*asked, "3.5", "--", "true")
    assert refused.exit_code == 2, refused.output
    said = " ".join(refused.stderr.split())
    assert "asked 3.5 GiB, the nearest node type (head) has 3 GiB" in said
    done = run(*asked, "2.5", "--", "true")
    assert done.exit_code == 0, done.output
