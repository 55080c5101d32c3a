"""What the command prints of a stack of Kubernetes without asking any: its manifest, its Role."""

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


def test_the_manifest_of_a_file_by_any_name(project):
    file = project / "elsewhere" / "cluster.yaml"
    file.parent.mkdir()
    (project / "Pulumi.mine.yaml").rename(file)
    for name, stack in {"cluster": (), "hers": ("hers",)}.items():
        made = yaml.safe_load_all(run("manifest", *stack, "--file", str(file)).stdout)
        assert [one["metadata"]["name"] for one in made] == [name, f"{name}-head"]
    assert "nowhere.yaml" in failed(2, "manifest", "--file", "nowhere.yaml")


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
    # What `kubectl apply`, `create secret`, `port-forward` and `logs job/NAME` ask for, and
    # `kubectl get secret`.
    needed = {
        *((what, verb) for what in KINDS for verb in APPLY),
        *(("secrets", "create"), ("secrets", "get"), ("services", "get"), ("pods", "list")),
        ("pods/portforward", "create"),
        *(("jobs", "get"), ("pods/log", "get")),
    }
    assert needed <= set(rights)
    assert rights["secrets", "get"] == ["mine-token"]
    assert not any(
        "*" in [*rule["verbs"], *rule["resources"], *rule["apiGroups"]] for rule in role["rules"]
    )
    assert not {("pods", "create"), ("secrets", "list")} & set(rights)


APPLY = ("get", "create", "patch", "delete")
KINDS = ("rayclusters", "rayservices", "rayjobs", "poddisruptionbudgets")


def test_another_target_has_no_role():
    assert "does not support" in failed(2, "manifest", "other", "--rbac")


def test_the_context_and_the_namespace_can_be_given():
    made = yaml.safe_load_all(run("manifest", "mine", "--namespace", "other").stdout)
    assert {one["metadata"]["namespace"] for one in made} == {"other"}
    assert "'Ml' is not a namespace" in failed(2, "manifest", "mine", "--namespace", "Ml")
    told = failed(2, "manifest", "other", "--context", "aks")
    assert "target 'slurm' does not support a context and a namespace" in told


def test_other_commands_of_this_machine_are_not_hindered():
    # No cluster is up, and no stack is named.
    assert run("down").exit_code == 0
    assert "no cluster is up" in failed(1, "status")


def test_doctor_refuses_a_wrong_stack_as_the_other_commands_do(project):
    file = project / "Pulumi.mine.yaml"
    elastic = STACK.replace("worker_nodes", "max_workers: 2, worker_nodes")
    small = elastic.replace("{cpu: 2, memory_gb: 4}", "{cpu: 1, memory_gb: 2}")
    file.write_text(
        small.replace(
            "  sunspot:kube", "    autoscaler_config: {cpu: 0.5, memory_gb: 1}\n  sunspot:kube"
        )
    )
    said = failed(2, "doctor", "mine")
    assert "1 GiB of memory are left for Ray" in said
    assert "kubeconfig" not in said
