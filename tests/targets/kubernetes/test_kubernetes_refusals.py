"""What `up` refuses before it creates anything, and what it takes away again where it fails."""

from __future__ import annotations

import json
import os
import re
import signal
import threading

import pytest
from cli_runs import failed, run
from kubernetes_objects import node, pod
from kubernetes_server import write_kubeconfig
from kubernetes_stacks import FILE

from sunspot import stack as stacks
from sunspot.errors import SunspotError, UsageError
from sunspot.targets import clusters
from sunspot.targets.kubernetes import access, api, quantities
from sunspot.targets.protocol import silent


def assert_refused(kubernetes, *parts, arguments=("up", "mine")):
    """`up` refuses the stack with these words, and nothing was created."""
    said = failed(2, *arguments)
    for part in parts:
        assert part in said
    assert kubernetes.api.names("rayclusters") == kubernetes.api.names("secrets") == []
    assert clusters.get("kubernetes").names() == []
    assert run("status", "mine").exit_code != 0
    return said


def test_no_kubeconfig(kubernetes):
    kubernetes.kubeconfig.unlink()
    assert_refused(kubernetes, "there is no kubeconfig", str(kubernetes.kubeconfig))


def test_a_kubeconfig_that_is_none(kubernetes):
    kubernetes.kubeconfig.write_text("{")
    assert_refused(kubernetes, "cannot be used", str(kubernetes.kubeconfig))


def test_a_wrong_context(kubernetes):
    arguments = ("up", "mine", "--context", "her")
    parts = ("there is no context 'her'", "here, elsewhere", "did you mean here")
    assert_refused(kubernetes, *parts, arguments=arguments)


@pytest.mark.parametrize("current", ["there", "here", ""])
def test_a_context_that_was_renamed_since(kubernetes, current):
    assert run("up", "mine").exit_code == 0
    text = kubernetes.kubeconfig.read_text()
    renamed = re.sub(r"\bhere\b", "there", text)
    renamed = renamed.replace("current-context: there", f"current-context: '{current}'")
    kubernetes.kubeconfig.write_text(renamed)
    said = failed(2, "down", "mine")
    assert "there is no context 'here'" in said
    assert "there, elsewhere" in said
    assert f"KUBECONFIG={kubernetes.kubeconfig} kubectl config rename-context NAME here" in said
    kubernetes.kubeconfig.write_text(text)
    assert run("down", "mine").exit_code == 0
    assert kubernetes.api.names("rayclusters") == []


def test_a_context_that_is_named_needs_no_current_one(kubernetes):
    text = kubernetes.kubeconfig.read_text()
    kubernetes.kubeconfig.write_text(text.replace("current-context: here", "current-context: ''"))
    assert run("up", "mine", "--context", "here").exit_code == 0
    assert run("down", "mine").exit_code == 0


def test_an_unreachable_server(kubernetes):
    said = failed(1, "up", "mine", "--context", "elsewhere")
    assert "Kubernetes (context elsewhere) does not answer at http://127.0.0.1:1" in said
    assert kubernetes.api.seen == []


def test_a_login_that_has_expired(kubernetes):
    text = kubernetes.kubeconfig.read_text()
    kubernetes.kubeconfig.write_text(text.replace("kubernetes-token", "expired"))
    assert_refused(kubernetes, "(401)", "Log in again")


def test_no_permission_names_the_verb_and_the_role(kubernetes):
    kubernetes.api.forbidden = {("create", "rayclusters"), ("get", "pods/portforward")}
    assert_refused(
        kubernetes,
        "you may not create rayclusters.ray.io in namespace default",
        "get pods/portforward in namespace default",
        "sunspot manifest mine --target kubernetes --namespace default --rbac",
    )


def test_without_kuberay(kubernetes):
    kubernetes.api.fields = None
    assert_refused(kubernetes, "no ray.io/v1 RayCluster", "helm install kuberay-operator")


def test_an_old_kuberay_by_its_crd(kubernetes):
    kubernetes.api.fields -= {"authOptions"}
    assert_refused(kubernetes, "has no spec.authOptions", "older than 1.6")


@pytest.mark.parametrize(
    ("image", "ready", "said"),
    [
        ("quay.io/kuberay/operator:v1.4.2", 1, "is older than 1.6"),
        ("registry.local/operator:v1.6.0", 0, "has no ready replica"),
    ],
)
def test_an_operator_that_is_old_or_does_not_run(kubernetes, image, ready, said):
    kubernetes.api.add("/apis/apps/v1/namespaces/ray/deployments/kuberay-operator", made_by(image))
    made = kubernetes.api.one("deployments")
    made["status"] = {"readyReplicas": ready}
    assert_refused(kubernetes, said, image)


def test_an_old_operator_beside_another_one_is_only_told(kubernetes):
    """Each may look after a namespace of its own (KubeRay's chart, singleNamespaceInstall)."""
    for namespace, image in (("old", "operator:v1.4.2"), ("ray", "operator:v1.6.0")):
        made = made_by(f"quay.io/kuberay/{image}") | {"status": {"readyReplicas": 1}}
        kubernetes.api.add(f"/apis/apps/v1/namespaces/{namespace}/deployments/kuberay", made)
    assert "older than 1.6" in " ".join(run("doctor", "mine").output.split())
    assert run("up", "mine").exit_code == 0
    run("down", "mine")


def test_what_only_a_newer_kuberay_has_asks_for_that_one(kubernetes):
    kubernetes.api.add(
        "/apis/apps/v1/namespaces/ray/deployments/kuberay-operator",
        made_by("quay.io/kuberay/operator:v1.6.0"),
    )
    kubernetes.api.one("deployments")["status"] = {"readyReplicas": 1}
    kubernetes.write(FILE.replace("on-demand", "spot-with-fallback"))
    assert_refused(kubernetes, "operator:v1.6.0", "older than 1.7", "CRDs")


@pytest.mark.parametrize("name", ["kuberay-operator", "kuberay"])
def test_the_operator_is_known_by_helms_label_and_by_kustomizes(kubernetes, name):
    made = made_by("quay.io/kuberay/operator:v1.6.0", name)
    kubernetes.api.add("/apis/apps/v1/namespaces/ray/deployments/kuberay-operator", made)
    assert "has no ready replica" in failed(2, "up", "mine")


def made_by(image, name="kuberay-operator"):
    template = {"spec": {"containers": [{"image": image}]}}
    labels = {"app.kubernetes.io/name": name}
    metadata = {"name": "kuberay-operator", "namespace": "ray", "labels": labels}
    return {"metadata": metadata, "spec": {"template": template}}


def test_a_namespace_that_does_not_exist(kubernetes):
    arguments = ("up", "mine", "--namespace", "ml")
    assert_refused(kubernetes, "no namespace 'ml'", "kubectl create", arguments=arguments)


@pytest.mark.parametrize(
    ("nodes", "said"),
    [
        ([node(cpu="1")], ("group head", "2 CPUs", "the largest node", "1 CPUs", "(n1)")),
        ([node(memory="3Gi")], ("group head", "4 GiB", "3 GiB")),
        (
            [node(taints=[{"key": "gpu", "value": "yes", "effect": "NoSchedule"}])],
            ("group workers", "none of the 1 nodes", "taints"),
        ),
    ],
)
def test_a_group_that_no_node_can_ever_hold(kubernetes, nodes, said):
    for one in nodes:
        kubernetes.api.add(f"/api/v1/nodes/{one['metadata']['name']}", one)
    assert_refused(kubernetes, "no node can ever hold its pods", *said)


@pytest.mark.parametrize(
    ("part", "mark"),
    [
        ("labels", "kubernetes.azure.com/agentpool"),
        ("annotations", "cluster.x-k8s.io/machine"),
    ],
)
def test_with_an_autoscaler_of_nodes_it_is_only_told(kubernetes, part, mark):
    small = node(cpu="1")
    small["metadata"].setdefault(part, {})[mark] = "cpu"
    kubernetes.api.add("/api/v1/nodes/n1", small)
    done = run("up", "mine")
    assert done.exit_code == 0
    assert "until the nodes' autoscaler adds one" in done.stderr
    run("down", "mine")


def test_without_any_node_it_is_only_told(kubernetes):
    del kubernetes.api.objects["/api/v1/nodes/n1"]
    done = run("up", "mine")
    assert done.exit_code == 0, done.stderr
    assert "none of the 0 nodes" in done.stderr
    run("down", "mine")


def add_quota(kubernetes, **spec):
    quota = {
        "metadata": {"name": "small"},
        "spec": spec,
        "status": {"hard": {"requests.cpu": "4"}, "used": {"requests.cpu": "1500m"}},
    }
    kubernetes.api.add("/api/v1/namespaces/default/resourcequotas/small", quota)


@pytest.mark.parametrize("spec", [{}, {"scopes": ["NotTerminating", "NotBestEffort"]}])
def test_a_quota_that_is_too_small(kubernetes, spec):
    add_quota(kubernetes, **spec)
    parts = ("quota small leaves 2.5 CPUs", "needs 3 CPUs")
    assert_refused(kubernetes, *parts)


@pytest.mark.parametrize(
    "spec",
    [
        {"scopes": ["BestEffort"]},
        {"scopeSelector": {"matchExpressions": [{"scopeName": "PriorityClass"}]}},
    ],
)
def test_a_quota_of_other_pods(kubernetes, spec):
    add_quota(kubernetes, **spec)
    done = run("up", "mine")
    assert done.exit_code == 0, done.stderr
    run("down", "mine")


def test_a_service_account_that_does_not_exist(kubernetes):
    kubernetes.write(f"{FILE}  sunspot:kubernetes: {{service_account: ghost}}\n")
    assert_refused(kubernetes, "has no service account 'ghost'", "kubectl create serviceaccount")
    kubernetes.api.forbidden.add(("list", "serviceaccounts"))  # it may not be seen
    assert run("up", "mine").exit_code == 0
    run("down", "mine")


def test_a_secret_of_the_tokens_name(kubernetes):
    where = "/api/v1/namespaces/default/secrets/mine-token"
    kubernetes.api.add(where, {"metadata": {"name": "mine-token"}})
    said = failed(2, "up", "mine")
    assert "has a Secret 'mine-token' already" in said
    assert "token_secret: mine-token; or delete it" in said
    assert kubernetes.api.names("rayclusters") == []


@pytest.mark.parametrize("left", [[], ["tunnel.log"]])
def test_a_folder_that_a_command_left_before_it_recorded_anything(kubernetes, left):
    folder = kubernetes.project / "state" / "kubernetes" / "mine"
    folder.mkdir(parents=True)
    for name in left:
        (folder / name).write_text("")
    assert "is not up" in failed(1, "status", "mine")
    done = run("up", "mine")
    assert done.exit_code == 0, done.stderr
    assert run("down", "mine").exit_code == 0
    assert not folder.exists()


def test_the_name_of_a_cluster_that_is_not_ours(kubernetes):
    kubernetes.api.add(
        "/apis/ray.io/v1/namespaces/default/rayclusters/mine", {"metadata": {"name": "mine"}}
    )
    assert "has a RayCluster 'mine' already" in failed(2, "up", "mine")
    assert kubernetes.api.names("rayclusters") == ["mine"]
    run("down", "mine")
    assert kubernetes.api.names("rayclusters") == ["mine"]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("name: My_Cluster", "'My_Cluster' is not a RayCluster's name"),
        ("cpu_nodes: {labels: {a b: c}}", "'a b' is not the name of a label"),
        ("namespace: Ml", "'Ml' is not a namespace"),
        ("context: ''", "context"),
    ],
)
def test_invalid_names_and_labels(kubernetes, line, said):
    kubernetes.write(f"{FILE}  sunspot:kubernetes:\n    {line}\n")
    assert said in failed(2, "up", "mine")
    assert kubernetes.api.seen == []


def test_a_port_of_this_machine_is_refused(kubernetes):
    assert_refused(kubernetes, "--port", arguments=("up", "mine", "--port", "6379"))


def test_a_secret_of_the_users_own_must_be_there(kubernetes):
    kubernetes.write(f"{FILE}  sunspot:kubernetes: {{token_secret: ours}}\n")
    assert_refused(kubernetes, "has no Secret 'ours' with the key auth_token")


def test_doctor_finds_the_same_and_creates_nothing(kubernetes):
    kubernetes.api.forbidden = {("create", "secrets")}
    found = json.loads(run("doctor", "mine", "--json").stdout)["findings"]
    levels = {one["check"]: one["level"] for one in found}
    assert levels == {"API server": "ok", "KubeRay": "warning", "rights": "failure"}
    kubernetes.api.forbidden = set()
    assert run("doctor", "mine").exit_code == 0
    assert run("doctor", "mine", "--context", "elsewhere").exit_code == 1
    kubernetes.kubeconfig.unlink()
    assert run("doctor", "mine").exit_code == 1
    assert kubernetes.api.names("rayclusters") == []


# What fails after it was created


def fail_with(kubernetes, made):
    """The head's pod becomes this one; returns what `up` says, after which nothing is there."""
    kubernetes.api.make_pods = lambda _cluster: [made]
    done = run("up", "mine")
    kinds = ("rayclusters", "secrets", "pods", "poddisruptionbudgets")
    assert [kubernetes.api.names(kind) for kind in kinds] == [[]] * len(kinds)
    assert not (kubernetes.project / "state" / "kubernetes" / "mine").exists()
    return done.exit_code, " ".join(done.stderr.split())


def test_an_image_that_does_not_exist_fails_at_once(kubernetes):
    waiting = {"reason": "ErrImagePull", "message": "ray:moon: not found"}
    code, said = fail_with(kubernetes, pod("mine", "head", "mine-head-1", waiting=waiting))
    assert code == 2
    assert "the image of mine-head-1 cannot be pulled (ErrImagePull): ray:moon: not found" in said


def test_a_time_out_says_why_a_pod_waits(kubernetes):
    reason = "0/1 nodes are available: 1 Insufficient cpu."
    waits = pod("mine", "head", "mine-head-1", unschedulable=reason)
    kubernetes.api.make_pods = lambda _cluster: [waits]
    target = clusters.get("kubernetes")
    with pytest.raises(SunspotError, match=f"timed out: .*{reason}"):
        target.up(stacks.load("mine").for_target("kubernetes"), silent, timeout_s=0.1)
    assert kubernetes.api.names("rayclusters") == []


def test_ctrl_c_takes_away_what_was_created(kubernetes):
    def make_pods(_cluster):
        threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
        return [pod("mine", "head", "mine-head-1", unschedulable="no node")]

    kubernetes.api.make_pods = make_pods
    assert run("up", "mine").exit_code == 130
    assert kubernetes.api.names("rayclusters") == kubernetes.api.names("secrets") == []


# Parts


def test_a_package_that_is_missing_names_the_command(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "kubernetes", None)
    place = access.Place(kubeconfig="f", context="c", namespace="n")
    with pytest.raises(UsageError, match=r"pip install '\.\[kubernetes\]'"):
        _ = api.Api(place).client


def test_in_a_pod_its_own_kubernetes_is_used(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.96.0.1")
    file = tmp_path / "namespace"
    file.write_text("ml\n")
    monkeypatch.setattr(access, "_POD_NAMESPACE", file)
    found = access.Place.find(None, None)
    assert found.is_inside
    assert found.namespace == "ml"
    with pytest.raises(UsageError, match="leave out --context"):
        access.Place.find("aks", None)


def test_the_namespace_of_the_context_is_the_default(tmp_path, monkeypatch):
    file = tmp_path / "config"
    write_kubeconfig(file, 1)
    monkeypatch.setenv("KUBECONFIG", str(file))
    assert access.Place.find(None, None).namespace == "default"
    file.write_text(
        file.read_text().replace(
            "user: ann\n  name: here", "user: ann\n    namespace: ml\n  name: here"
        )
    )
    assert access.Place.find(None, None).namespace == "ml"
    assert access.Place.find(None, "x").namespace == "x"


@pytest.mark.parametrize(
    ("text", "number"),
    [("500m", 0.5), ("2", 2), ("1.5Gi", 1.5 * 2**30), ("1e3", 1000), ("2k", 2000), ("64Ki", 65536)],
)
def test_quantities(text, number):
    assert float(quantities.number(text)) == number


def test_an_operator_that_may_not_run_is_told_until_it_has_made_the_pods(kubernetes):
    # Its deployment is not there, and would be seen.
    assert "KubeRay's operator may not run" in run("doctor", "mine").stdout
    made = run("up", "mine")
    assert made.exit_code == 0
    assert "may not run" not in made.stderr
    run("down", "mine")
