"""YAML files of a user: within bounds, with the numbers of YAML 1.2."""

import resource
import subprocess
import sys

import pytest

from sunspot import stack, yaml_files
from sunspot.errors import UsageError
from sunspot.ray import runtime_env

# Each line repeats the one before it nine times: 9**9 values.
LINES = [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 9)]
BOMB = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n" + "".join(LINES)
MERGES = [f"a{n}: &a{n}\n  <<: [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 9)]
MERGED_BOMB = "a0: &a0 {x: 1}\n" + "".join(MERGES)
BOMBS = [BOMB + "config: {sunspot:cluster: *a8}\n", MERGED_BOMB + "config: *a8\n"]
GIB = 2**30


@pytest.fixture
def project(tmp_path):
    (tmp_path / "Pulumi.yaml").write_text("name: sunspot\nruntime: python\n")

    def write(text):
        (tmp_path / "Pulumi.dev.yaml").write_text(text)
        return tmp_path

    return write


@pytest.mark.parametrize("text", BOMBS)
def test_aliases_that_would_fill_the_memory_are_refused(project, text):
    folder = project(text)
    script = f"import pathlib, sunspot.stack as s; s.load('dev', pathlib.Path({str(folder)!r}))"
    done = subprocess.run(
        [sys.executable, "-c", script],
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (GIB, GIB)),
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert "UsageError" in done.stderr.splitlines()[-2]
    message = done.stderr.splitlines()[-1]
    assert "values" in message
    assert f"{yaml_files.LIMIT_VALUES:,}" in message


@pytest.mark.parametrize("text", BOMBS)
def test_a_runtime_environment_is_read_within_the_same_bounds(tmp_path, text):
    file = tmp_path / "env.yaml"
    file.write_text(text)
    with pytest.raises(UsageError, match=r"env\.yaml: the file has [\d,]+ values"):
        runtime_env.load(file, [], None)


def test_a_file_that_is_too_long_is_not_read(project):
    with pytest.raises(UsageError, match=r"Pulumi\.dev\.yaml:\n.*256 KiB"):
        stack.load("dev", project("# " + "x" * yaml_files.LIMIT_BYTES))


def test_a_few_aliases_are_fine(project):
    text = "size: &size {vm_size: D2s_v5}\nconfig: {sunspot:cluster: {head_node: *size}}\n"
    assert stack.load("dev", project(text)).cluster.head_node.cpu == 2


@pytest.mark.parametrize(
    ("text", "value"),
    [("1e3", 1000.0), ("1.5e3", 1500.0), ("-1E+2", -100.0), (".5e1", 5.0), ("1e3x", "1e3x")],
)
def test_numbers_with_an_exponent_are_numbers(tmp_path, text, value):
    file = tmp_path / "x.yaml"
    file.write_text(f"x: {text}\n")
    assert yaml_files.load(file) == {"x": value}


@pytest.mark.parametrize(
    ("cpu", "limit"), [("1e308", "10000"), ("1e999", "finite"), ("-1e3", "0 or more")]
)
def test_a_number_beyond_its_limit_is_told_the_limit(project, cpu, limit):
    text = f"config: {{sunspot:cluster: {{head_node: {{cpu: {cpu}, memory_gb: 4}}}}}}\n"
    with pytest.raises(UsageError) as caught:
        stack.load("dev", project(text))
    assert "head_node > cpu" in str(caught.value)
    assert limit in str(caught.value)
    assert "quotes" not in str(caught.value)
