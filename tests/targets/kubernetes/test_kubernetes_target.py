"""A cluster's life on a stand-in of Kubernetes' API: every command, and what it leaves."""

from __future__ import annotations

import contextlib
import io
import json
import socket
import stat
from types import SimpleNamespace
from typing import Any

import job_api
import psutil
import pytest
import yaml
from cli_runs import failed, run
from kubernetes_api import owned_by
from kubernetes_objects import pod
from waiting import wait_for

from sunspot.node.free_ports import free_port
from sunspot.targets.kubernetes import api, members, pods, way_in
from sunspot.targets.kubernetes.forwarder import HeadPort
from sunspot.targets.kubernetes.objects import Pod
from sunspot.targets.kubernetes.removing import Removing
from sunspot.targets.kubernetes.target import create


def forwarders():
    """The processes that lead to heads."""
    mine = psutil.Process().children(recursive=True)
    lines = [one.cmdline() for one in mine if one.status() != psutil.STATUS_ZOMBIE]
    return [line for line in lines if "sunspot.targets.kubernetes.forwarder" in line]


def test_up_makes_a_cluster_that_owns_all_that_belongs_to_it(kubernetes, up):
    api = kubernetes.api
    assert "mine is up (kubernetes)" in up.stdout
    assert (api.names("rayclusters"), api.names("secrets")) == (["mine"], ["mine-token"])
    cluster = api.one("rayclusters")
    for kind in ("secrets", "poddisruptionbudgets"):
        (owner,) = api.one(kind)["metadata"]["ownerReferences"]
        assert owner["uid"] == cluster["metadata"]["uid"]
    token = kubernetes.project / "state" / "kubernetes" / "mine" / "token"
    assert stat.S_IMODE(token.stat().st_mode) == 0o600
    assert token.read_text() not in up.output
    # It stands nowhere but in the Secret.
    assert job_api.TOKEN not in json.dumps(cluster)


def test_a_second_up_changes_nothing(kubernetes, up):
    written = len([one for one in kubernetes.api.seen if one[0] == "POST"])
    done = run("up", "mine")
    assert "mine is up already" in done.stdout
    assert "other settings" not in done.stderr
    assert len([one for one in kubernetes.api.seen if one[0] == "POST"]) == written


def test_status_has_the_members_and_the_pods_that_wait(kubernetes, up):
    reason = "0/1 nodes are available: 1 Insufficient cpu."
    kubernetes.api.add(
        "/api/v1/namespaces/default/pods/late",
        pod("mine", "workers", "late", unschedulable=reason),
    )
    nodes = json.loads(run("status", "mine", "--json").stdout)["nodes"]
    assert [(one["name"], one["group"], one["state"]) for one in nodes] == [
        ("head", "head", "up"),
        ("mine-workers-0", "workers", "up"),
        ("late", "workers", "starting"),
    ]
    assert nodes[-1]["notes"] == [reason]


def test_a_job_goes_through_the_port_forward(port_forward, kubernetes, up):
    (kubernetes.project / "empty").mkdir()
    done = run("submit", "--stack", "mine", "--working-dir", "empty", "--", "true")
    assert (done.exit_code, done.stdout) == (0, "done\n"), done.output
    assert len(forwarders()) == 1  # that of `up`, which stays


def test_the_log_of_a_node(kubernetes, up):
    kubernetes.api.logs["mine-head-1"] = "Ray runtime started.\n"
    assert run("logs", "--node", "head").stdout == "Ray runtime started.\n"
    assert "has no node 'nobody'; it has: head, mine-workers-0" in failed(
        2, "logs", "--node", "nobody"
    )


def test_a_log_comes_in_pieces_that_end_anywhere():
    head, out = Pod(pod("mine", "head", "mine-head-1")), io.StringIO()
    api = SimpleNamespace(stream=lambda *_, **__: iter([b"a \xe2\x94", b"\x80 b\n\xe2"]))
    cluster: Any = SimpleNamespace(api=api, pods=lambda: [head], log_path=str)
    assert members.show_log("mine", cluster, "head", out, print, follow=False) == 0
    assert out.getvalue() == "a \u2500 b\n\ufffd"


def test_a_worker_that_was_removed_is_not_a_lost_one(kubernetes, up):
    # What Ray 2.60 says after the drain at a pod's end.
    (*_, worker) = kubernetes.jobs.nodes
    said = f"Terminated due to preemption: {pods.POD_ENDS}"
    removed = worker | {"node_id": "x", "node_name": "x", "state": "DEAD", "state_message": said}
    crashed = removed | {
        "node_id": "y",
        "node_name": "y",
        "state_message": "Unexpected termination",
    }
    kubernetes.jobs.nodes += [removed, crashed]
    nodes = json.loads(run("status", "mine", "--json").stdout)["nodes"]
    assert [one["name"] for one in nodes if one["state"] == "lost"] == ["y"]


def test_a_worker_that_the_autoscaler_ended_does_not_start(kubernetes, up):
    assert run("scale", "workers=2").exit_code == 0
    kubernetes.api.one("rayclusters")["spec"]["workerGroupSpecs"][0]["minReplicas"] = 1
    (*_, worker) = kubernetes.jobs.nodes
    said = "Termination of node that's idle"  # as the autoscaler drains it
    worker |= {"state": "DEAD", "state_message": f"Terminated due to idle: {said}"}
    nodes = json.loads(run("status", "mine", "--json").stdout)["nodes"]
    assert "mine-workers-1" in kubernetes.api.names("pods")
    names = [one["name"] for one in nodes]
    assert names == ["head", "mine-workers-0"]


def test_forward_leads_to_a_port_until_the_head_is_gone(kubernetes, up, monkeypatch):
    monkeypatch.setattr(way_in, "LOOK_S", 0)
    with create().forward("mine", 8265, None, print) as way:
        with socket.create_connection(("127.0.0.1", way.port)) as to:
            to.sendall(b"GET /api/jobs/ HTTP/1.1\r\nHost: head\r\n\r\n")
            assert b"401" in to.recv(100)
        assert way.is_open is not None
        assert way.is_open()
        # An API server that does not answer for a while says nothing of the head.
        kubernetes.api.troubles = {("GET", "pods"): [503] * (1 + api.BUSY_RETRIES)}
        monkeypatch.setattr(api, "BUSY_BACKOFF_S", 0)
        assert way.is_open()
        assert kubernetes.api.troubles == {("GET", "pods"): []}
        kubernetes.api.make_pods = lambda _cluster: []
        kubernetes.api.reconcile()
        assert not way.is_open()


def test_forward_refuses_a_port_on_which_nothing_listens(kubernetes, up):
    assert "nothing listens on port 9999" in failed(2, "forward", "mine", "9999")


def test_down_leaves_nothing(port_forward, kubernetes, up):
    done = run("down", "mine")
    assert "mine is down" in done.stdout
    api = kubernetes.api
    kinds = ("rayclusters", "secrets", "poddisruptionbudgets", "pods")
    assert [api.names(kind) for kind in kinds] == [[]] * len(kinds)
    wait_for("the port-forward to end", lambda: not forwarders())
    assert not (kubernetes.project / "state" / "kubernetes" / "mine").exists()
    assert "nothing to do" in run("down", "mine").stdout


def test_down_leaves_no_port_forward_that_another_command_opened_meanwhile(
    port_forward, kubernetes, up, monkeypatch
):
    removes = Removing.take_down

    def take_down(removing, progress, **patience):
        create().handle("mine")  # as one that follows a job does where its connection breaks off
        assert len(forwarders()) == 1
        return removes(removing, progress, **patience)

    monkeypatch.setattr(Removing, "take_down", take_down)
    assert "mine is down" in run("down", "mine").stdout
    wait_for("the port-forward to end", lambda: not forwarders())


def test_down_closes_a_port_forward_that_is_left_without_a_record(port_forward, kubernetes, up):
    folder = kubernetes.project / "state" / "kubernetes" / "mine"
    place = (folder / "place.json").rename(kubernetes.project / "place.json")
    (kubernetes.project / "Pulumi.mine.yaml").rename(kubernetes.project / "away")
    assert "nothing to do" in run("down", "mine").output
    wait_for("the port-forward to end", lambda: not forwarders())
    assert not folder.exists()
    (kubernetes.project / "away").rename(kubernetes.project / "Pulumi.mine.yaml")
    place.unlink()


def test_down_ends_the_pods_before_what_makes_and_holds_them(kubernetes, up):
    # After it the garbage collector has deleted them, with all of their grace period.
    run("down", "mine")
    assert kubernetes.api.deleted[:3] == [("pods", 2), ("pods", 2), ("rayclusters", None)]


def test_down_ends_no_pod_where_the_raycluster_may_not_be_deleted(kubernetes, up):
    kubernetes.api.forbidden = {("delete", "rayclusters")}
    assert "cannot delete" in failed(2, "down", "mine")
    assert kubernetes.api.deleted == []
    kubernetes.api.forbidden = set()


def test_down_deletes_the_rest_where_pods_may_not_be_deleted(kubernetes, up):
    kubernetes.api.forbidden = {("delete", "pods")}
    assert "mine is down" in run("down", "mine").stdout
    assert kubernetes.api.names("pods") == []


def test_down_ends_no_pod_of_somebody_elses_cluster_of_that_name(kubernetes, up):
    kubernetes.api.one("rayclusters")["metadata"]["labels"] = {}
    assert "mine is down" in run("down", "mine").stdout
    assert kubernetes.api.names("rayclusters") == ["mine"]
    assert kubernetes.api.names("pods") == ["mine-head-1", "mine-workers-0"]
    kubernetes.api.objects.clear()


def test_commands_go_to_the_place_of_the_cluster_whatever_the_current_context(kubernetes, up):
    config = yaml.safe_load(kubernetes.kubeconfig.read_text())
    kubernetes.kubeconfig.write_text(yaml.safe_dump(config | {"current-context": "elsewhere"}))
    assert json.loads(run("status", "mine", "--json").stdout)["problem"] is None


def test_up_in_another_place_is_refused_while_it_is_up(kubernetes, up):
    for place in (("--namespace", "ml"), ("--context", "elsewhere")):
        said = failed(2, "up", "mine", *place)
        assert "'mine' is up in namespace default of Kubernetes (context here)" in said
        assert f"cannot be in {place[0][2:]} {place[1]} as well" in said
    assert "there is no context 'nope'" in failed(2, "up", "mine", "--context", "nope")
    # Another context of the same place is no other place.
    config = yaml.safe_load(kubernetes.kubeconfig.read_text())
    config["contexts"].append({"name": "admin", "context": {"cluster": "here", "user": "ann"}})
    kubernetes.kubeconfig.write_text(yaml.safe_dump(config))
    for place in (("--namespace", "default"), ("--context", "admin")):
        assert "mine is up already" in run("up", "mine", *place).stdout


def test_a_cluster_is_found_in_a_folder_without_a_project(kubernetes, up, monkeypatch):
    (kubernetes.project / "Pulumi.yaml").unlink()
    with monkeypatch.context() as elsewhere:
        elsewhere.setenv("SUNSPOT_STATE_DIR", str(kubernetes.project / "other"))
        assert json.loads(run("status", "mine", "--json").stdout)["problem"] is None
        assert "mine is down" in run("down", "mine").stdout


@pytest.fixture
def usual_port_taken():
    """Ray Client's usual port is not free: a test that runs beside may take it, and leave it."""
    with socket.socket() as taken:
        with contextlib.suppress(OSError):  # it is taken already
            taken.bind(("127.0.0.1", 10001))
            taken.listen()
        yield


def test_a_port_forward_that_is_opened_again_has_the_same_ports(
    port_forward, kubernetes, usual_port_taken, up
):
    records = create().records
    wished = free_port(set())
    assert run("up", "mine", "--dashboard-port", str(wished)).exit_code == 0
    before = records.tunnel("mine").port(), records.tunnel("mine").also()
    assert before[0] == wished
    for process in psutil.Process().children(recursive=True):
        if "sunspot.targets.kubernetes.forwarder" in process.cmdline():
            process.kill()
            process.wait()
    assert run("jobs", "--stack", "mine").exit_code == 0
    assert (records.tunnel("mine").port(), records.tunnel("mine").also()) == before


def test_a_cluster_is_found_without_a_record(port_forward, kubernetes, up, monkeypatch):
    with monkeypatch.context() as elsewhere:
        elsewhere.setenv("SUNSPOT_STATE_DIR", str(kubernetes.project / "other"))
        assert json.loads(run("status", "mine", "--json").stdout)["problem"] is None
        assert "mine is up already" in run("up", "mine").stdout
        assert "mine is down" in run("down", "mine").stdout
    assert kubernetes.api.names("rayclusters") == []
    # The machine that brought it up still has a port-forward and a record, until its own `down`.
    run("down", "mine")
    wait_for("the port-forward to end", lambda: not forwarders())


def test_down_waits_until_what_kuberay_made_is_gone(kubernetes, up):
    # The next cluster of this name would be given the account of this one, which is about to go.
    account = {"metadata": {"ownerReferences": [owned_by(kubernetes.api.one("rayclusters"))]}}
    kubernetes.api.add("/api/v1/namespaces/default/serviceaccounts/mine", account)
    kubernetes.api.collects_after_reads = 4
    assert "mine is down" in run("down", "mine").stdout
    assert kubernetes.api.names("serviceaccounts") == []


def test_down_frees_a_cluster_that_no_operator_lets_go(kubernetes, up, monkeypatch):
    monkeypatch.setattr("sunspot.targets.kubernetes.removing.FINALIZER_PATIENCE_S", 0.5)
    kubernetes.api.one("rayclusters")["metadata"]["finalizers"] = ["ray.io/gcs-ft"]
    assert "mine is down" in run("down", "mine").stdout
    assert kubernetes.api.names("rayclusters") == []


def test_down_works_when_the_namespace_is_gone(kubernetes, up):
    kubernetes.api.objects.clear()
    assert "mine is down" in run("down", "mine").stdout


def test_down_says_what_is_left_and_keeps_the_record(kubernetes, up, monkeypatch):
    monkeypatch.setattr(Removing, "_wait_for_pods", lambda *_: None)
    stuck = pod("mine", "workers", "stuck")
    stuck["metadata"]["finalizers"] = ["example.com/never"]
    kubernetes.api.add("/api/v1/namespaces/default/pods/stuck", stuck)
    assert "pod stuck" in failed(1, "down", "mine")
    kubernetes.api.objects.pop("/api/v1/namespaces/default/pods/stuck")
    assert "mine is down" in run("down", "mine").stdout


def test_a_head_that_is_gone(kubernetes, up):
    del kubernetes.api.objects["/api/v1/namespaces/default/pods/mine-head-1"]
    said = failed(1, "jobs", "--stack", "mine")
    assert "the head of 'mine' does not run now" in said
    kubernetes.api.objects.clear()
    assert "it was taken down or deleted" in failed(1, "jobs", "--stack", "mine")
    assert json.loads(run("status", "mine", "--json").stdout)["nodes"] == []


def test_a_pod_that_was_replaced_is_found_by_an_open_port_forward(kubernetes, up):
    cluster = create().records.read("mine").cluster()
    root = "/api/v1/namespaces/default/pods"
    kubernetes.api.objects[f"{root}/mine-head-2"] = pod("mine", "head", "mine-head-2")
    kubernetes.api.add(f"{root}/mine-head-2", kubernetes.api.objects.pop(f"{root}/mine-head-2"))
    del kubernetes.api.objects[f"{root}/mine-head-1"]
    assert HeadPort(cluster, 8265).listens()
    assert run("jobs", "--stack", "mine").exit_code == 0
