"""KubeRay's operator is not there, is refused what it needs, or makes the head's pod late."""

from __future__ import annotations

import pytest
from cli_runs import failed, run
from kubernetes_objects import pod

from sunspot import stack as stacks
from sunspot.errors import SunspotError
from sunspot.targets.kubernetes import starting
from sunspot.targets.kubernetes.target import create
from sunspot.targets.protocol import silent

PODS = "/api/v1/namespaces/default/pods"


def refuse_the_head(kubernetes, *messages, uid=None, reason="FailedToCreateHeadPod"):
    """KubeRay's operator makes no pod, and events say why; of the RayCluster, or of that uid."""

    def make_pods(cluster):
        about = {"kind": "RayCluster", "name": "mine", "uid": uid or cluster["metadata"]["uid"]}
        for number, message in enumerate(messages):
            event = {
                "metadata": {"name": f"e{number}"},
                "type": "Warning",
                "involvedObject": about,
                "lastTimestamp": f"2026-01-01T00:00:0{number}Z",
                "reason": reason,
                "message": message,
            }
            kubernetes.api.add(f"/api/v1/namespaces/default/events/e{number}", event)
        return []

    kubernetes.api.make_pods = make_pods


NO_ACCOUNT = (
    'pods "mine-head-" is forbidden: error looking up service account default/mine: serviceaccount '
    '"mine" not found'
)


def test_a_quota_that_the_operator_meets(kubernetes):
    refuse_the_head(kubernetes, 'pods "mine-head" is forbidden: exceeded quota: small')
    assert "exceeded quota: small" in failed(2, "up", "mine")
    assert kubernetes.api.names("rayclusters") == []


def test_a_pod_that_is_invalid(kubernetes):
    said = 'Pod "mine-head" is invalid: spec.containers[0].volumeMounts[2].name: Not found: "zz"'
    refuse_the_head(kubernetes, said)
    assert 'Not found: "zz"' in failed(2, "up", "mine")
    assert kubernetes.api.names("rayclusters") == []


def test_a_refusal_of_an_earlier_cluster_of_that_name_is_not_of_this_one(kubernetes, monkeypatch):
    monkeypatch.setattr(starting, "OPERATOR_PATIENCE_S", 0.1)
    refuse_the_head(kubernetes, "exceeded quota: small", uid="of-yesterday")
    assert "has made no pod of mine" in failed(1, "up", "mine")


def test_an_account_that_kuberay_makes_anew_is_waited_for(kubernetes):
    # It saw the one of an earlier cluster of that name, which was deleted before the pod was made.
    makes = kubernetes.api.make_pods
    refuse_the_head(kubernetes, NO_ACCOUNT)

    def make_them_now():
        kubernetes.api.make_pods = makes
        kubernetes.api.reconcile()

    kubernetes.api.after_reads[PODS] = [make_them_now, *[lambda: None] * 3]
    assert run("up", "mine").exit_code == 0
    run("down", "mine")


def test_an_account_that_is_never_there(kubernetes, monkeypatch):
    monkeypatch.setattr(starting, "ACCOUNT_PATIENCE_S", 0.1)
    refuse_the_head(kubernetes, NO_ACCOUNT)
    assert 'serviceaccount "mine" not found' in failed(2, "up", "mine")
    assert kubernetes.api.names("rayclusters") == []


def test_an_account_of_the_users_own_is_not_waited_for(kubernetes):
    refuse_the_head(kubernetes, NO_ACCOUNT.replace("mine", "blobs"))
    assert 'serviceaccount "blobs" not found' in failed(2, "up", "mine")


def test_an_account_that_the_autoscaler_needs(kubernetes):
    # KubeRay's words where the head's pod has an account of the user's (raycluster_controller.go).
    refuse_the_head(
        kubernetes, "ServiceAccount blobs is not found", reason="AutoscalerServiceAccountNotFound"
    )
    assert "ServiceAccount blobs is not found" in failed(2, "up", "mine")


def test_the_latest_refusal_is_told(kubernetes, monkeypatch):
    monkeypatch.setattr(starting, "ACCOUNT_PATIENCE_S", 0.1)
    refuse_the_head(kubernetes, NO_ACCOUNT, "exceeded quota: small")
    assert "exceeded quota: small" in failed(2, "up", "mine")


def test_a_refusal_that_is_over_is_no_reason_why_workers_are_awaited(kubernetes):
    refuse_the_head(kubernetes, NO_ACCOUNT)
    refused = kubernetes.api.make_pods

    def make_pods(cluster):
        refused(cluster)
        return [pod("mine", "head", "mine-head-1"), pod("mine", "workers", "w", unschedulable="no")]

    kubernetes.api.make_pods = make_pods
    with pytest.raises(SunspotError, match="w: ") as caught:
        create().up(stacks.load("mine").for_target("kubernetes"), silent, timeout_s=0.1)
    assert "serviceaccount" not in str(caught.value)


def test_no_operator_at_all(kubernetes, monkeypatch):
    monkeypatch.setattr(starting, "OPERATOR_PATIENCE_S", 0.1)
    kubernetes.api.make_pods = lambda _cluster: []
    assert "KubeRay's operator has made no pod of mine" in failed(1, "up", "mine")
    assert kubernetes.api.names("rayclusters") == []
