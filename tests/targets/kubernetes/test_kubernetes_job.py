"""A cluster for one command: the RayJob of `sunspot manifest --job`."""

import json

import jsonschema
import pytest
import yaml
from cli_runs import failed, run
from kubernetes_stacks import group, stack
from test_kubernetes_schema import CRD as CLUSTERS_CRD
from test_kubernetes_schema import strict

from sunspot.errors import UsageError
from sunspot.targets.kubernetes import rayjob

CRD = CLUSTERS_CRD.with_name("ray.io_rayjobs.yaml")
COMMAND = ("python", "/code/train.py", "--name", "two words")
WORKERS = group(minimum=0, maximum=2)


def spec(*groups, environment=None, **settings):
    (made,) = rayjob.make(stack(*groups or (WORKERS,), **settings), COMMAND, environment)
    return made["spec"]


def test_the_cluster_goes_with_the_command_which_is_not_run_again():
    made = spec()
    assert made["entrypoint"] == "exec python /code/train.py --name 'two words'"
    assert made["shutdownAfterJobFinishes"] is True
    assert made["ttlSecondsAfterFinished"] == 0
    assert made["backoffLimit"] == 0
    assert made["rayClusterSpec"]["authOptions"] == {"mode": "token", "secretName": "course-token"}


def test_the_submitter_runs_where_pods_without_gpus_do():
    taint = {"key": "a", "operator": "Exists", "effect": "NoSchedule"}
    cpu_nodes = {"node_selector": {"kind": "cpu"}, "tolerations": [taint]}
    pod = spec(cpu_nodes=cpu_nodes, image_pull_secrets=["mine"])["submitterPodTemplate"]["spec"]
    assert pod["nodeSelector"] == {"kind": "cpu"}
    assert pod["tolerations"] == [taint]
    assert pod["imagePullSecrets"] == [{"name": "mine"}]
    assert pod["restartPolicy"] == "Never"


def test_a_runtime_environment_is_written_out():
    environment = {"pip": ["emoji"], "working_dir": "https://example.com/code.zip"}
    assert yaml.safe_load(spec(environment=environment)["runtimeEnvYAML"]) == environment


@pytest.mark.parametrize("key", ["working_dir", "py_modules"])
def test_a_folder_of_this_machine_is_refused(key):
    folder = "." if key == "working_dir" else ["."]
    with pytest.raises(UsageError, match=key):
        spec(environment={key: folder})


def test_a_name_that_leaves_no_room_for_kuberays_own_is_refused():
    with pytest.raises(UsageError, match="name"):
        rayjob.make(stack(WORKERS, called="a" * 50), COMMAND)


@pytest.fixture
def project(tmp_path, monkeypatch):
    config = {"sunspot:target": "kubernetes", "sunspot:cluster": {"head_node": HEAD}}
    (tmp_path / "Pulumi.yaml").write_text("name: x\nruntime: python\n")
    (tmp_path / "Pulumi.dev.yaml").write_text(yaml.safe_dump({"config": config}))
    monkeypatch.chdir(tmp_path)
    return tmp_path


HEAD = {"cpu": 2, "memory_gb": 8}


def test_the_command_prints_it(project):
    (project / "env.json").write_text(json.dumps({"pip": ["emoji"]}))
    done = run("manifest", "dev", "--job", "--runtime-env", "env.json", "--", *COMMAND)
    assert done.exit_code == 0, done.output
    (made,) = yaml.safe_load_all(done.stdout)
    assert (made["kind"], made["metadata"]["name"]) == ("RayJob", "dev")
    assert "emoji" in made["spec"]["runtimeEnvYAML"]


@pytest.mark.usefixtures("project")
@pytest.mark.parametrize(
    "words",
    [
        ("--job",),
        ("--", "true"),
        ("--job", "--rbac", "--", "true"),
        ("--runtime-env", "gone.yaml"),
        ("--job", "--runtime-env", "gone.yaml", "--", "true"),
        ("--job", "--target", "slurm", "--", "true"),
    ],
)
def test_what_does_not_fit_together_is_refused(words):
    failed(2, "manifest", "dev", *words)


@pytest.mark.skipif(not CRD.is_file(), reason="KubeRay's CRDs are not beside the code")
def test_it_is_valid():
    versions = yaml.load(CRD.read_text(), Loader=yaml.CSafeLoader)["spec"]["versions"]
    schema = next(one for one in versions if one["name"] == "v1")["schema"]["openAPIV3Schema"]
    validator = jsonschema.Draft202012Validator(strict(schema))
    tolerations = [{"key": "a", "operator": "Exists"}]
    environment = {"pip": ["emoji"]}
    placed = stack(WORKERS, cpu_nodes={"tolerations": tolerations})
    (waits,) = rayjob.waiting(placed)
    (made,) = rayjob.make(placed, COMMAND, environment)
    assert [one.message for one in validator.iter_errors(waits)] == []
    assert [one.message for one in validator.iter_errors(made)] == []
    made["spec"]["entrypont"] = made["spec"].pop("entrypoint")
    assert len(list(validator.iter_errors(made))) == 1
