"""The commands on a stack of Kubernetes: the manifest is printed, all else says what to do."""

from __future__ import annotations

import pytest
import yaml
from cli_runs import failed, run

STACK = """\
config:
  sunspot:target: kubernetes
  sunspot:cluster:
    head_node: {cpu: 2, memory_gb: 4}
    scaling_groups:
      - {name: workers, market: spot, worker_nodes: {cpu: 1, memory_gb: 2}}
  sunspot:kubernetes:
    namespace: ml
    user_group: analysts
"""


@pytest.fixture(autouse=True)
def project(tmp_path, monkeypatch):
    (tmp_path / "Pulumi.yaml").write_text("name: sunspot\nruntime: python\n")
    (tmp_path / "Pulumi.mine.yaml").write_text(STACK)
    (tmp_path / "Pulumi.other.yaml").write_text(STACK.replace(": kubernetes\n", ": slurm\n", 1))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SUNSPOT_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("COLUMNS", "400")
    return tmp_path


def test_the_manifest_is_all_that_is_printed():
    done = run("manifest", "mine")
    assert done.exit_code == 0
    assert done.stderr == ""
    kinds = [one["kind"] for one in yaml.safe_load_all(done.stdout)]
    assert kinds == ["RayCluster", "PodDisruptionBudget"]
    other = yaml.safe_load_all(run("manifest", "other", "--target", "kubernetes").stdout)
    assert [one["metadata"]["name"] for one in other] == ["other", "other-head"]


def test_with_serve_it_is_a_rayservice(project):
    done = run("manifest", "mine", "--serve", "main:app")
    assert done.exit_code == 0
    assert [one["kind"] for one in yaml.safe_load_all(done.stdout)] == ["RayService"]
    assert "neither a file that exists nor MODULE:APP" in failed(2, "manifest", "mine", "--serve=x")
    assert "give one of them" in failed(2, "manifest", "mine", "--rbac", "--serve", "main:app")
    told = failed(2, "manifest", "other", "--serve", "main:app")
    assert "target 'slurm' does not support printing what it is given for Ray Serve" in told


def test_the_role_is_enough_and_not_more():
    role, binding = yaml.safe_load_all(run("manifest", "mine", "--rbac").stdout)
    assert (role["kind"], binding["kind"]) == ("Role", "RoleBinding")
    assert role["metadata"]["namespace"] == binding["metadata"]["namespace"] == "ml"
    assert binding["roleRef"]["name"] == role["metadata"]["name"]
    assert [one["name"] for one in binding["subjects"]] == ["analysts"]
    rights = {
        (resource, verb): rule.get("resourceNames")
        for rule in role["rules"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
    # What `kubectl apply`, `create secret` and `port-forward` ask for, and `kubectl get secret`.
    needed = {
        *((what, verb) for what in KINDS for verb in APPLY),
        *(("secrets", "create"), ("secrets", "get"), ("services", "get"), ("pods", "list")),
        ("pods/portforward", "create"),
    }
    assert needed <= set(rights)
    assert rights["secrets", "get"] == ["mine-token"]
    assert not any(
        "*" in [*rule["verbs"], *rule["resources"], *rule["apiGroups"]] for rule in role["rules"]
    )
    assert not {("pods/exec", "create"), ("pods", "create"), ("secrets", "list")} & set(rights)


APPLY = ("get", "create", "patch", "delete")
KINDS = ("rayclusters", "rayservices", "poddisruptionbudgets")


def test_another_target_has_no_role():
    assert "does not support" in failed(2, "manifest", "other", "--rbac")


@pytest.mark.parametrize(
    "arguments",
    [
        ("up", "mine"),
        ("up", "other", "--target", "kubernetes"),
        ("down", "mine"),
        ("down", "other", "--target", "kubernetes"),
        ("status", "mine"),
        ("status", "--target", "kubernetes"),
        ("submit", "--stack", "mine", "--", "python", "x.py"),
        ("submit", "--target", "kubernetes", "--", "python", "x.py"),
        ("jobs", "--stack", "mine"),
        ("logs", "--stack", "mine", "id"),
        ("scale", "workers=2", "--stack", "mine"),
        ("run", "mine", "--", "python", "x.py"),
        ("doctor", "mine"),
        ("ssh", "mine"),
        ("dashboard", "mine"),
        ("serve", "status", "mine"),
    ],
)
def test_every_other_command_says_how_to_do_it_with_kubectl(arguments):
    said = failed(2, *arguments)
    for part in (
        "Sunspot does not start clusters on Kubernetes yet",
        "--target kubernetes | kubectl apply -f -",
        "kubectl port-forward --namespace",
        "-head-svc 8265",
        "ray job submit --address http://127.0.0.1:8265",
    ):
        assert part in said


def test_the_commands_name_what_the_stack_does():
    said = failed(2, "up", "mine")
    for part in (
        "create secret generic mine-token --namespace ml",
        "sunspot manifest mine --target kubernetes",
        "--namespace ml service/mine-head-svc 8265",
        "kubectl get secret mine-token --namespace ml",
    ):
        assert part in said


def test_what_is_wrong_with_the_stack_comes_first(project):
    file = project / "Pulumi.mine.yaml"
    file.write_text(STACK + "    groups: {gpu: {}}\n")
    said = failed(2, "up", "mine")
    assert "groups > gpu" in said
    assert "kubectl" not in said


def test_other_commands_of_this_machine_are_not_hindered():
    # No cluster is up, and no stack is named.
    assert run("down").exit_code == 0
    assert "no cluster is up" in failed(1, "status")
