"""The command on one host: the file that it prints, and what it refuses."""

import pytest
import yaml
from compose_stacks import group
from typer.testing import CliRunner

from sunspot.cli.app import app
from sunspot.targets.records import STATE_DIRECTORY_VARIABLE


@pytest.fixture
def run(tools, tmp_path, monkeypatch):
    """Runs the command in a project whose workers have a GPU each.

    In the stack "course" they are the host's, in "logical" numbers.
    """
    (tmp_path / "Pulumi.yaml").write_text("name: sunspot\nruntime: python\n")
    workers = group("gpu", gpus=1, cpu=1, memory_gb=2)
    config = {
        "sunspot:target": "compose",
        "sunspot:cluster": {
            "head_node": {"cpu": 1, "memory_gb": 2},
            "scaling_groups": [workers],
            "autoscaler_config": {"cpu": 0.5, "memory_gb": 1},
        },
    }
    (tmp_path / "Pulumi.course.yaml").write_text(yaml.safe_dump({"config": config}))
    logical = config | {"sunspot:compose": {"gpu": "none"}}
    (tmp_path / "Pulumi.logical.yaml").write_text(yaml.safe_dump({"config": logical}))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(STATE_DIRECTORY_VARIABLE, str(tmp_path / "state"))
    return lambda *arguments: CliRunner().invoke(app, list(arguments))


def test_manifest_prints_the_file_and_nothing_else(run, tmp_path):
    done = run("manifest", "logical")
    assert done.exit_code == 0
    assert yaml.safe_load(done.stdout)["name"] == "sunspot-logical"
    assert not (tmp_path / "state").exists()


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("manifest", "course"), "nvidia-smi"),
        (("up", "course", "--gpu", "cuda"), "cuda"),
        (("up", "course", "--gpu", "amd"), "docker"),
        (("up", "course", "--port", "6379"), "--port"),
        (("up", "course", "--port", "0"), "--port 0 is not a port"),
        (("up", "course", "--dashboard-port", "70000"), "from 1 to 65535"),
        (("manifest", "course", "--target", "local"), "'local'"),
        (("up", "course", "--target", "local", "--gpu", "none"), "GPUs"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_made(run, tmp_path, arguments, named):
    done = run(*arguments)
    assert done.exit_code == 2
    assert named in done.stderr
    assert not list((tmp_path / "state").rglob("*.json"))


def test_doctor_says_what_is_missing(run):
    done = run("doctor", "course")
    assert done.exit_code == 1
    assert "docs.docker.com" in done.stdout
