"""The runtime environment of a job."""

import json

import pytest
from job_api import refusal

from sunspot.ray import runtime_env


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("env.yaml", "pip: [numpy]\nenv_vars:\n  A: '1'\n"),
        ("env.json", '{"pip": ["numpy"], "env_vars": {"A": "1"}}'),
    ],
)
def test_runtime_env_is_read_from_yaml_and_json(tmp_path, name, text):
    (tmp_path / name).write_text(text)
    env = runtime_env.load(tmp_path / name, [], None)
    assert env["env_vars"] == {"A": "1"}
    assert "numpy" in json.dumps(env["pip"])
    assert env["working_dir"] == "."


def test_flags_win_over_the_file(tmp_path):
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir()
    there.mkdir()
    file = tmp_path / "env.yaml"
    file.write_text(f"working_dir: {there}\nenv_vars: {{A: file, B: file}}\n")
    assert runtime_env.load(file, [], None)["working_dir"] == str(there)
    env = runtime_env.load(file, ["B=flag", "C=x=y", "D="], str(here))
    assert env["env_vars"] == {"A": "file", "B": "flag", "C": "x=y", "D": ""}
    assert env["working_dir"] == str(here)


def test_without_anything_the_working_directory_goes_along_and_the_programs_own_wins():
    wins = {"env_vars": {"RAY_OVERRIDE_JOB_RUNTIME_ENV": "1"}}
    assert runtime_env.load(None, [], None) == {"working_dir": "."} | wins
    assert runtime_env.load(None, [], "there") == {"working_dir": "there"} | wins
    assert runtime_env.load(None, ["A=1", "A=2"], "s3://b/x.zip") == {
        "env_vars": {"A": "2"},
        "working_dir": "s3://b/x.zip",
    }


@pytest.mark.parametrize("variable", ["A", "=1", ""])
def test_an_env_flag_that_is_not_a_pair_is_refused(variable):
    message = refusal(runtime_env.load, None, [variable], None)
    assert repr(variable) in message
    assert "NAME=VALUE" in message


@pytest.mark.parametrize(
    ("content", "part"),
    [
        (b"[1, 2]", "must hold a mapping"),
        (b"", "must hold a mapping"),
        (b"hello", "must hold a mapping"),
        (b"{a: [", "neither YAML nor JSON"),
        (b"pip: 5", "pip"),
        (b"env_vars: {A: 1}", "env_vars"),
        (b"{pip: [a], conda: x}", "conda"),
        (b"working_dir: ./not-there", "not-there"),
        (b"1: 2", ""),
        (b"\xff\x00", "neither YAML nor JSON"),
    ],
)
def test_a_bad_runtime_env_file_is_named_with_its_fault(tmp_path, content, part):
    file = tmp_path / "env.yaml"
    file.write_bytes(content)
    message = refusal(runtime_env.load, file, [], None)
    assert str(file) in message
    assert part in message


def test_a_missing_runtime_env_file_is_named(tmp_path):
    message = refusal(runtime_env.load, tmp_path / "gone.yaml", [], None)
    assert str(tmp_path / "gone.yaml") in message
    assert "No such file" in message


def test_local_py_modules_are_refused_and_remote_ones_pass(tmp_path):
    module = tmp_path / "mine"
    module.mkdir()
    file = tmp_path / "env.yaml"
    file.write_text(f"py_modules: ['s3://bucket/a.zip', {module}]\n")
    message = refusal(runtime_env.load, file, [], None)
    assert str(module) in message
    assert "s3://" not in message
    assert "working directory" in message
    file.write_text("py_modules: ['s3://bucket/a.zip']\n")
    assert runtime_env.load(file, [], None)["py_modules"] == ["s3://bucket/a.zip"]
