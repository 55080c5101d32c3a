"""The packages that a job brings along, and the one that it lacked."""

import pytest
from job_api import refusal

from sunspot.ray import packages, runtime_env
from sunspot.ray.packages import Packages


@pytest.fixture
def requirements(tmp_path):
    file = tmp_path / "requirements.txt"
    file.write_text("# what we need\nemoji==2.14 \\\n    --hash=sha256:ab\n\nnumpy>=2  # arrays\n")
    return file


def test_packages_of_flags_and_files_are_all_asked_for(tmp_path, requirements):
    env = tmp_path / "env.yaml"
    env.write_text("pip: [rich]\nenv_vars: {A: '1'}\n")
    wanted = Packages(pip=["torch>=2", " tqdm "], requirements=requirements)
    found = runtime_env.load(env, [], None, wanted)
    assert found["pip"]["packages"] == [
        "rich",
        "emoji==2.14 \\",
        "--hash=sha256:ab",
        "numpy>=2  # arrays",
        "torch>=2",
        "tqdm",
    ]
    assert found["env_vars"] == {"A": "1"}
    assert runtime_env.load(None, [], None, Packages(pip=["emoji"])) == {
        "pip": {"packages": ["emoji"]},
        "working_dir": ".",
    }


def test_ray_takes_what_is_asked_for(tmp_path, requirements):
    from ray.runtime_env import RuntimeEnv

    conda = tmp_path / "conda.yaml"
    conda.write_text("dependencies: [numpy, {pip: [emoji]}]\n")
    for wanted in (Packages(pip=["emoji"], requirements=requirements), Packages(conda=conda)):
        assert RuntimeEnv(**wanted.added_to({})).to_dict()


def test_without_packages_the_environment_is_as_it_was():
    assert Packages().added_to({"env_vars": {"A": "1"}}) == {"env_vars": {"A": "1"}}


def test_a_conda_file_becomes_the_environment(tmp_path):
    file = tmp_path / "conda.yaml"
    file.write_text("name: mine\ndependencies: [numpy]\n")
    env = runtime_env.load(None, [], None, Packages(conda=file))
    assert env["conda"] == {"name": "mine", "dependencies": ["numpy"]}


@pytest.mark.parametrize("flag", ["requirements", "conda"])
def test_a_file_that_is_missing_is_named(tmp_path, flag):
    file = tmp_path / "gone.txt"
    message = refusal(Packages(**{flag: file}).added_to, {})
    assert str(file) in message
    assert "No such file" in message


@pytest.mark.parametrize(
    ("flag", "content", "part"),
    [
        ("requirements", b"# nothing\n", "no package"),
        ("requirements", b"\xff\xfe", "not text"),
        ("requirements", b"emoji\n-r more.txt\n", "line 2: '-r more.txt'"),
        ("requirements", b"-e .\n", "'-e .'"),
        ("requirements", b"./wheels/mine.whl\n", "./wheels/mine.whl"),
        ("conda", b"[a, b]", "mapping"),
        ("conda", b"{a: [", "not YAML"),
    ],
)
def test_a_file_that_cannot_work_is_named_with_its_fault(tmp_path, flag, content, part):
    file = tmp_path / "given"
    file.write_bytes(content)
    message = refusal(Packages(**{flag: file}).added_to, {})
    assert str(file) in message
    assert part in message


@pytest.mark.parametrize("name", ["", " ", "-r", "-e.", "./mine", "../mine", "/mine"])
def test_what_pip_cannot_install_on_a_node_is_refused(name):
    assert repr(name) in refusal(Packages(pip=[name]).added_to, {})


def test_pip_and_conda_exclude_each_other(tmp_path):
    file = tmp_path / "conda.yaml"
    file.write_text("dependencies: [numpy]\n")
    assert "conda and pip" in refusal(Packages(pip=["emoji"], conda=file).added_to, {})
    assert "pip and uv" in refusal(Packages(pip=["emoji"]).added_to, {"uv": {"packages": ["a"]}})
    assert "conda and pip" in refusal(Packages(conda=file).added_to, {"pip": {"packages": ["a"]}})


@pytest.mark.parametrize(
    ("log", "parts"),
    [
        ("ModuleNotFoundError: No module named 'emoji'\n", ["'emoji'", "--pip emoji "]),
        ("x\nModuleNotFoundError: No module named 'yaml.nodes'\ny", ["--pip pyyaml "]),
        ("in a task\nModuleNotFoundError: No module named 'mine'", ["'mine'", "working directory"]),
    ],
)
def test_a_missing_module_is_named_with_its_package(log, parts):
    message = packages.missing_module(log)
    assert message is not None
    assert [part for part in parts if part not in message] == []


@pytest.mark.parametrize("log", ["", "ImportError: cannot import name 'a'", "KeyError: 'numpy'"])
def test_another_end_says_nothing_of_packages(log):
    assert packages.missing_module(log) is None
