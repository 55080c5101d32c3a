"""What passes by itself, and so ends no `up` and no `down`: a busy API server, a busy registry."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest
from cli_runs import failed, run
from kubernetes_api import CUT_OFF, LOST
from kubernetes_objects import pod

from sunspot.targets.kubernetes import api, objects, outages
from sunspot.targets.kubernetes.errors import ApiError, UnreachableError, explained
from sunspot.targets.kubernetes.target import create
from sunspot.targets.protocol import silent
from sunspot.targets.starting import take_down

UNAVAILABLE, TOO_MANY = 503, 429

# More than a single request is sent again.
LONG = [UNAVAILABLE] * (2 * api.BUSY_RETRIES)


@pytest.fixture
def at_once(monkeypatch):
    """Nothing is waited for between two attempts."""
    monkeypatch.setattr(api, "BUSY_BACKOFF_S", 0)
    monkeypatch.setattr(outages, "POLL_S", 0)


@pytest.mark.usefixtures("at_once")
@pytest.mark.parametrize("trouble", [[UNAVAILABLE], [LOST], LONG], ids=["busy", "lost", "long"])
def test_a_server_that_answers_later(kubernetes, trouble):
    kubernetes.api.troubles = {("GET", "pods"): [*trouble]}
    done = run("up", "mine")
    assert done.exit_code == 0, done.stderr
    assert kubernetes.api.troubles == {("GET", "pods"): []}
    kubernetes.api.troubles = {("DELETE", "rayclusters"): [*trouble], ("GET", "pods"): [*trouble]}
    done = run("down", "mine")
    assert done.exit_code == 0, done.stderr
    assert not any(kubernetes.api.troubles.values())
    for kind in ("rayclusters", "secrets", "pods", "poddisruptionbudgets"):
        assert kubernetes.api.names(kind) == []


def test_what_creates_is_sent_again_only_if_nothing_was_created(kubernetes):
    kubernetes.api.troubles = {("POST", "secrets"): [TOO_MANY]}
    assert run("up", "mine").exit_code == 0
    assert run("down", "mine").exit_code == 0
    kubernetes.api.seen.clear()
    kubernetes.api.troubles = {("POST", "secrets"): [LOST]}
    said = failed(1, "up", "mine")
    assert "does not answer" in said
    sent = [path for method, path in kubernetes.api.seen if method == "POST"]
    assert [path.endswith("/secrets") for path in sent].count(True) == 1
    assert kubernetes.api.names("rayclusters") == kubernetes.api.names("secrets") == []


@pytest.mark.usefixtures("at_once")
def test_what_ends_with_its_caller_outlasts_a_server_that_is_away(kubernetes):
    assert run("up", "mine").exit_code == 0
    away = {("GET", "rayclusters"): [UNAVAILABLE] * (api.BUSY_RETRIES + 1)}
    kubernetes.api.troubles = {key: [*some] for key, some in away.items()}
    assert "503" in failed(1, "down", "mine")
    kubernetes.api.troubles = away
    removal = take_down(create(), "mine", silent)
    assert removal is not None
    assert removal.left == []
    assert kubernetes.api.names("rayclusters") == []


@pytest.mark.usefixtures("at_once")
def test_a_server_that_stays_away(kubernetes, monkeypatch):
    assert run("up", "mine").exit_code == 0
    monkeypatch.setattr(outages, "PATIENCE_S", 0.1)
    kubernetes.api.troubles = {("GET", "pods"): [UNAVAILABLE] * 10_000}
    assert "answered 503: the server is overloaded" in failed(1, "down", "mine")
    kubernetes.api.troubles.clear()
    assert run("down", "mine").exit_code == 0
    assert kubernetes.api.names("rayclusters") == []


def test_an_outage_after_another_one_is_outlasted_too(monkeypatch):
    clock = SimpleNamespace(now=0.0, sleep=lambda _seconds: None, monotonic=lambda: clock.now)
    monkeypatch.setattr(outages, "time", clock)
    took, told = [1.0, outages.AT_WORK_S + 1, 1.0, 1.0], []

    def ask():
        clock.now += took.pop(0)
        if took:
            raise UnreachableError("away")
        return "here"

    assert outages.outlast(ask, told.append) == "here"
    assert len(told) == 3


def test_work_that_ends_in_the_same_refusal_again_and_again_ends(monkeypatch):
    clock = SimpleNamespace(now=0.0, sleep=lambda _seconds: None, monotonic=lambda: clock.now)
    monkeypatch.setattr(outages, "time", clock)

    def ask():
        clock.now += outages.AT_WORK_S + 1
        raise ApiError("failed calling webhook", 500)

    told = []
    with pytest.raises(ApiError, match="webhook"):
        outages.outlast(ask, told.append)
    assert len(told) == 1


@pytest.mark.parametrize("text", ["<html>Log in</html>", "null", "[]", ""])
def test_what_is_not_kubernetes_is_named(kubernetes, text):
    kubernetes.api.answers = {"/version": text}
    said = failed(1, "up", "mine")
    assert f"is not its API: {text or 'nothing'}" in said
    assert kubernetes.api.names("rayclusters") == []


@pytest.mark.usefixtures("at_once")
def test_an_answer_that_is_cut_off_is_asked_for_again(kubernetes):
    kubernetes.api.troubles = {("GET", "pods"): [CUT_OFF]}
    done = run("up", "mine")
    assert done.exit_code == 0, done.stderr
    run("down", "mine")


# A registry

BUSY = "failed to pull: toomanyrequests: You have reached your pull rate limit"
# Azure/AKS#4052, which AKS says of good images, too, for a minute or two.
REFUSED = (
    "failed to authorize: failed to fetch anonymous token: unexpected status from GET request to "
    "https://mine.azurecr.io/oauth2/token?scope=repository: 401 Unauthorized"
)
PASSING = pytest.mark.parametrize(
    ("says", "patience"), [(BUSY, "PULL_PATIENCE_S"), (REFUSED, "REFUSED_PATIENCE_S")]
)


def head_that_waits(kubernetes, says):
    """The head's pod, which waits for its image; the others of the cluster run."""
    head = pod("mine", "head", "mine-head-1", waiting={"reason": "ErrImagePull", "message": says})
    make_pods = kubernetes.api.make_pods
    kubernetes.api.make_pods = lambda cluster: [head, *make_pods(cluster)[1:]]
    return head


@PASSING
def test_what_a_registry_says_for_a_while_is_waited_for(kubernetes, says, patience):
    assert getattr(objects, patience) >= 120
    head = head_that_waits(kubernetes, says)

    def pulled():
        head["status"] = pod("mine", "head", "mine-head-1")["status"]

    # The last one is the next.
    kubernetes.api.after_reads["/api/v1/namespaces/default/pods"] = [pulled, *[lambda: None] * 2]
    done = run("up", "mine")
    assert done.exit_code == 0, done.stderr
    assert f"mine-head-1 waits: container ray: ErrImagePull: {says}" in done.stderr
    assert run("down", "mine").exit_code == 0


@PASSING
def test_what_a_registry_goes_on_to_say_ends_up(kubernetes, says, patience, monkeypatch):
    monkeypatch.setattr(objects, patience, 0.2)
    name = head_that_waits(kubernetes, says)["metadata"]["name"]
    said = failed(2, "up", "mine")
    assert f"the image of {name} cannot be pulled (ErrImagePull): {says}" in said
    assert kubernetes.api.names("rayclusters") == []


@pytest.mark.parametrize(
    "said",
    [
        'admission webhook "validation.gatekeeper.sh" denied the request: no privileged pods',
        "ValidatingAdmissionPolicy 'pods' with binding 'pods' denied request: no privileged pods",
        'pods "w0" is forbidden: exceeded quota: small',
        'persistentvolumeclaims "c" is forbidden: minimum storage usage per claim is 20Gi',
    ],
)
def test_a_policy_that_refuses_is_not_a_missing_right(said):
    told = str(explained(403, json.dumps({"message": said}), "Kubernetes"))
    assert told == f"Kubernetes forbids it (403): {said}"


def test_a_missing_right_is_told_with_what_gives_it():
    missing = 'pods is forbidden: User "ann" cannot create resource "pods"'
    assert "--rbac" in str(explained(403, json.dumps({"message": missing}), "Kubernetes"))
