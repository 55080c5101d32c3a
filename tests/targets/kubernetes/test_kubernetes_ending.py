"""What an interrupted command leaves: a RayCluster that is being deleted, or has no Secret."""

from __future__ import annotations

import base64
import contextlib
from collections.abc import Iterator
from contextlib import nullcontext

import job_api
import pytest
from cli_runs import failed, run
from kubernetes_server import write_kubeconfig
from kubernetes_stacks import FILE

from sunspot import stack as stacks
from sunspot.node.free_ports import free_port
from sunspot.targets import one_job
from sunspot.targets.kubernetes import starting
from sunspot.targets.kubernetes.raycluster import MANAGED_BY
from sunspot.targets.kubernetes.records import STACK_ANNOTATION, as_annotation
from sunspot.targets.kubernetes.target import create
from sunspot.targets.protocol import silent
from sunspot.targets.starting import Start

CLUSTER = "/apis/ray.io/v1/namespaces/default/rayclusters/mine"
SECRET = "/api/v1/namespaces/default/secrets/mine-token"


@pytest.fixture
def ending(kubernetes, up):
    """The uid of a cluster whose `down` was cut off while the garbage collector was at work."""
    api = kubernetes.api
    api.collects_after_reads = 8
    with api.lock:
        uid = api.objects[CLUSTER]["metadata"]["uid"]
        api.delete(SECRET, {})
        api.delete(CLUSTER, {"propagationPolicy": "Foreground"})
        assert CLUSTER in api.objects
    yield uid
    api.collect()


@pytest.fixture
def elsewhere(kubernetes, monkeypatch):
    """Another machine with the same file, for the block, which ends with its `down`."""

    @contextlib.contextmanager
    def another() -> Iterator[None]:
        with monkeypatch.context() as there:
            there.setenv("SUNSPOT_STATE_DIR", str(kubernetes.project / "other"))
            yield
            run("down", "mine")

    return another


@pytest.mark.parametrize("number", [0, 1])
def test_a_start_that_is_cut_short_leaves_another_machines_cluster(
    kubernetes, up, elsewhere, number
):
    steps = []

    def cut_short(step):
        steps.append(step)
        if len(steps) > number:
            raise KeyboardInterrupt

    with elsewhere():
        start = Start(create(), stacks.load("mine"))
        with pytest.raises(KeyboardInterrupt):
            start.up(cut_short)
        assert not start.is_ours, steps
        assert kubernetes.api.names("rayclusters") == ["mine"]


def test_what_has_no_record_here_is_not_taken_down_with_a_command(kubernetes, up, elsewhere):
    with elsewhere():
        assert one_job._take_down(create(), "mine", lambda _: nullcontext(silent)) is None
        assert kubernetes.api.names("rayclusters") == ["mine"]


@pytest.mark.parametrize("command", ["up", "down", "status"])
def test_a_cluster_of_another_version_of_sunspot_is_no_stranger(kubernetes, up, elsewhere, command):
    made = kubernetes.api.one("rayclusters")["metadata"]
    text = made["annotations"][STACK_ANNOTATION]
    with elsewhere():
        made["annotations"][STACK_ANNOTATION] = text.replace("{", '{"later": 1, ', 1)
        told = failed(2, command, "mine")
        assert "another version of Sunspot made the RayCluster 'mine'" in told
        assert "kubectl delete raycluster mine --namespace default" in told
        made["annotations"][STACK_ANNOTATION] = text


def test_down_of_what_is_in_a_kubernetes_that_is_gone_says_how_to_forget_it(kubernetes, up):
    kubeconfig = kubernetes.kubeconfig.read_text()
    kubernetes.kubeconfig.unlink()
    told = failed(2, "down", "mine")
    assert f"rm -r {kubernetes.project}/state/kubernetes/mine" in told
    kubernetes.kubeconfig.write_text(kubeconfig)
    run("down", "mine")


def test_up_waits_for_its_end_and_starts_anew(kubernetes, ending):
    made = run("up", "mine")
    assert made.exit_code == 0
    assert "removing what an earlier command left" in made.stderr
    assert kubernetes.api.one("rayclusters")["metadata"]["uid"] != ending


def test_up_from_another_machine_does_the_same(kubernetes, ending, elsewhere):
    with elsewhere():
        assert run("up", "mine").exit_code == 0
        assert kubernetes.api.one("rayclusters")["metadata"]["uid"] != ending


def test_down_goes_on_from_another_machine(kubernetes, ending, elsewhere):
    with elsewhere():
        assert "mine is down" in run("down", "mine").stdout
    assert kubernetes.api.names("rayclusters") == []


def test_it_is_not_waited_for_as_if_it_would_come(kubernetes, ending):
    assert "it was taken down or deleted" in failed(1, "jobs", "--stack", "mine")
    assert CLUSTER in kubernetes.api.objects


def test_one_whose_secret_was_never_made_is_taken_down_from_another_machine(
    kubernetes, up, elsewhere
):
    del kubernetes.api.objects[SECRET]
    with elsewhere():
        assert "mine is down" in run("down", "mine").stdout
    assert kubernetes.api.names("rayclusters") == []


def test_up_leaves_a_cluster_whose_secret_it_may_not_read(kubernetes, up, elsewhere):
    uid = kubernetes.api.objects[CLUSTER]["metadata"]["uid"]
    with elsewhere():
        kubernetes.api.forbidden = {("get", "secrets")}
        for command in ("up", "status"):
            assert "cannot get" in failed(2, command, "mine")
        kubernetes.api.forbidden = set()
        assert "mine is up already" in run("up", "mine").stdout
        assert kubernetes.api.objects[CLUSTER]["metadata"]["uid"] == uid


def test_up_leaves_a_cluster_that_runs_and_whose_secret_somebody_deleted(
    kubernetes, up, elsewhere, monkeypatch
):
    monkeypatch.setattr(starting, "CONFIG_PATIENCE_S", 0)
    deleted = kubernetes.api.objects.pop(SECRET)
    with elsewhere():
        for command in ("up", "status"):
            assert "sunspot down mine" in failed(2, command, "mine")
        assert kubernetes.api.names("pods") == ["mine-head-1", "mine-workers-0"]
        kubernetes.api.objects[SECRET] = deleted
        assert "mine is up already" in run("up", "mine").stdout


def test_up_waits_for_the_secret_that_another_machine_is_about_to_make(kubernetes, up, elsewhere):
    api = kubernetes.api
    made = api.objects.pop(SECRET)
    api.after_reads[SECRET] = [lambda: api.add(SECRET, made), *[lambda: None] * 3]
    with elsewhere():
        found = run("up", "mine")
    assert "which another command may be making" in found.stderr
    assert "mine is up already" in found.stdout


def test_up_starts_anew_where_another_machine_was_cut_off_before_the_secret(
    kubernetes, up, elsewhere, monkeypatch
):
    monkeypatch.setattr(starting, "CONFIG_PATIENCE_S", 0)
    uid = kubernetes.api.objects[CLUSTER]["metadata"]["uid"]
    del kubernetes.api.objects[SECRET]
    for name in kubernetes.api.names("pods"):
        found = kubernetes.api.objects[f"/api/v1/namespaces/default/pods/{name}"]
        found["status"] = {"phase": "Pending"}
    with elsewhere():
        assert "what an earlier command left" in run("up", "mine").stderr
        assert kubernetes.api.objects[CLUSTER]["metadata"]["uid"] != uid


def test_down_needs_no_token(kubernetes, up, elsewhere):
    with elsewhere():
        kubernetes.api.forbidden = {("get", "secrets"), ("get", "poddisruptionbudgets")}
        assert "mine is down" in run("down", "mine").stdout
        kubernetes.api.forbidden = set()
    for kind in ("rayclusters", "secrets", "poddisruptionbudgets", "pods"):
        assert kubernetes.api.names(kind) == []


def test_two_machines_bring_it_up_at_the_same_moment(kubernetes, elsewhere, monkeypatch):
    stack = stacks.load("mine").for_target("kubernetes")
    theirs = {
        "name": "mine",
        "labels": MANAGED_BY,
        "annotations": {STACK_ANNOTATION: as_annotation(stack)},
    }

    def token() -> str:  # the last that is done before the RayCluster is created
        kubernetes.api.add(CLUSTER, {"metadata": theirs, "spec": {}})
        return job_api.TOKEN

    monkeypatch.setattr(starting, "new_token", token)
    assert "another command brings 'mine' up" in failed(2, "up", "mine")
    assert CLUSTER in kubernetes.api.objects
    assert create().names() == []


def test_what_another_machine_made_meanwhile_is_not_taken_for_ours(kubernetes):
    api, theirs = kubernetes.api, {"metadata": {"name": "mine", "labels": MANAGED_BY, "uid": "x"}}

    def make_no_pods(_cluster):
        # Its `down`, which we notice, and its next `up`, before we take away what is ours.
        api.after_reads[CLUSTER] = [
            lambda: api.add(CLUSTER, theirs),
            lambda: api.delete(CLUSTER, {}),
        ]
        return []

    api.make_pods = make_no_pods
    assert "was deleted while it started" in failed(1, "up", "mine")
    assert api.objects[CLUSTER]["metadata"]["uid"] == "x"
    assert create().names() == []


def test_the_secret_is_made_last_so_that_where_it_is_everything_is(kubernetes, up):
    made = [path for verb, path in kubernetes.api.seen if verb == "POST" and "/default/" in path]
    assert [path.rsplit("/", 1)[1] for path in made[-2:]] == ["poddisruptionbudgets", "secrets"]


def test_what_the_cluster_was_made_from_counts_and_not_this_machines_file(
    kubernetes, up, elsewhere
):
    kubernetes.write(FILE + "  sunspot:kubernetes:\n    token_secret: own\n")
    with elsewhere():
        assert "mine is up already" in run("up", "mine").stdout


def test_a_token_that_another_machine_made_anew_is_read(kubernetes, up):
    token = create().records.token("mine")
    token.write_bytes(b"of-the-cluster-before\xff")
    assert run("jobs", "--stack", "mine").exit_code == 0
    assert token.read_text() == job_api.TOKEN
    # What cannot be read now is as it was.
    kubernetes.api.forbidden = {("get", "secrets")}
    assert run("jobs", "--stack", "mine").exit_code == 0
    kubernetes.api.forbidden = set()


def test_one_whose_own_secret_is_gone_stays_until_that_is_there_again(kubernetes, elsewhere):
    path = "/api/v1/namespaces/default/secrets/own"
    token = base64.b64encode(job_api.TOKEN.encode()).decode()
    secret = {"metadata": {"name": "own"}, "data": {"auth_token": token}}
    kubernetes.api.add(path, secret)
    kubernetes.write(FILE + "  sunspot:kubernetes:\n    token_secret: own\n")
    assert run("up", "mine").exit_code == 0
    # The pods go on with the token that they began with.
    kubernetes.api.objects[path]["data"] = {"auth_token": "bmV3"}
    assert run("jobs", "--stack", "mine").exit_code == 0
    assert create().records.token("mine").read_text() == job_api.TOKEN
    del kubernetes.api.objects[path]
    with elsewhere():
        assert "has no Secret 'own'" in failed(2, "up", "mine")
        assert kubernetes.api.names("rayclusters") == ["mine"]
        assert "mine is down" in run("down", "mine").stdout
    run("down", "mine")


def test_down_does_not_say_that_nothing_is_up_where_it_could_not_ask(kubernetes, up, elsewhere):
    with_port = kubernetes.kubeconfig.read_text()
    with elsewhere():
        write_kubeconfig(kubernetes.kubeconfig, free_port(set()))
        assert "nothing to do" not in failed(1, "down", "mine")
        kubernetes.kubeconfig.write_text(with_port)
        kubernetes.api.forbidden = {("get", "rayclusters")}
        assert "cannot get" in failed(2, "down", "mine")
    kubernetes.api.forbidden = set()
