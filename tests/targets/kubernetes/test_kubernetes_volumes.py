"""`sunspot down --volumes`: the volume of the GCS's state goes, where it would be kept."""

from __future__ import annotations

import pytest
import yaml
from cli_runs import failed, run

CLAIM = "mine-gcs-pvc"
CLAIMS = "/api/v1/namespaces/default/persistentvolumeclaims"


def has_claims(kubernetes):
    return kubernetes.api.names("persistentvolumeclaims")


@pytest.mark.parametrize("flag", ["--volumes", "--delete-storage"])
def test_down_deletes_what_is_kept_where_it_is_told_to(kubernetes, write, flag):
    write(keep=True)
    assert run("up", "mine").exit_code == 0
    said = run("down", flag, "mine").stdout
    assert "mine is down" in said
    assert "kept" not in said
    assert has_claims(kubernetes) == []


def test_down_deletes_no_claim_of_the_users(kubernetes, write):
    kubernetes.api.add(f"{CLAIMS}/theirs", {"metadata": {"name": "theirs"}})
    write(claim="theirs")
    assert run("up", "mine").exit_code == 0
    assert "mine is down" in run("down", "--volumes", "mine").stdout
    assert has_claims(kubernetes) == ["theirs"]


def test_down_does_not_delete_the_state_of_another_commands_cluster(kubernetes, write, monkeypatch):
    write(keep=True)
    assert run("up", "mine").exit_code == 0
    with monkeypatch.context() as elsewhere:
        elsewhere.setenv("SUNSPOT_STATE_DIR", str(kubernetes.project / "other"))
        assert run("down", "mine").exit_code == 0
        assert run("up", "mine").exit_code == 0
    assert f"kept: claim {CLAIM}" in run("down", "--volumes", "mine").stdout
    assert has_claims(kubernetes) == [CLAIM]
    run("down", "mine")


def test_down_deletes_what_an_earlier_down_kept(kubernetes, write):
    write(keep=True)
    assert run("up", "mine").exit_code == 0
    assert f"kept: claim {CLAIM}" in run("down", "mine").stdout
    assert run("down", "mine").exit_code == 0
    assert has_claims(kubernetes) == [CLAIM]
    done = run("down", "--volumes", "mine")
    assert done.exit_code == 0, done.output
    assert has_claims(kubernetes) == []
    assert "nothing to do" in run("down", "--volumes", "mine").output


def test_a_cluster_that_was_applied_is_not_touched(kubernetes, write):
    write(keep=True)
    documents = [*yaml.safe_load_all(run("manifest", "mine").stdout)]
    cluster = next(one for one in documents if one["kind"] == "RayCluster")
    kubernetes.api.post("/apis/ray.io/v1/namespaces/default/rayclusters", cluster, {})
    assert "did not make: nothing of it was deleted" in failed(2, "down", "--volumes", "mine")
    assert kubernetes.api.deleted == []
    assert "nothing to do" in run("down", "mine").stdout


def test_who_may_not_delete_the_volume_loses_no_cluster_to_the_attempt(kubernetes, write):
    write(keep=True)
    assert run("up", "mine").exit_code == 0
    kubernetes.api.forbidden = {("delete", "persistentvolumeclaims")}
    assert "(403)" in failed(2, "down", "--volumes", "mine")
    assert kubernetes.api.names("pods") != []
    assert kubernetes.api.names("rayclusters") == ["mine"]
    kubernetes.api.forbidden = set()


def test_a_claim_that_is_going_is_not_called_kept(kubernetes, write, monkeypatch):
    monkeypatch.setattr("sunspot.targets.kubernetes.removing.CLAIM_PATIENCE_S", 0.1)
    write(keep=True)
    assert run("up", "mine").exit_code == 0
    metadata = kubernetes.api.one("persistentvolumeclaims")["metadata"]
    metadata["finalizers"] = ["kubernetes.io/pvc-protection"]
    assert f"PersistentVolumeClaim {CLAIM}" in failed(1, "down", "--volumes", "mine")
    assert f"PersistentVolumeClaim {CLAIM}" in failed(1, "down", "mine")
    kubernetes.api.objects.pop(f"{CLAIMS}/{CLAIM}")
