"""Stack files: which there are, and what is said of those that cannot be read."""

import os
import re
import textwrap
from pathlib import Path
from types import SimpleNamespace

import pytest

from sunspot import stack, stack_problems
from sunspot.errors import UntrustedError, UsageError

GOOD = "config:\n  sunspot:cluster:\n    head_node: {vm_size: Standard_D2s_v5}\n"


@pytest.fixture
def project(tmp_path):
    """A project's folder; call it with a text to write Pulumi.dev.yaml."""
    (tmp_path / "Pulumi.yaml").write_text("name: sunspot\nruntime: python\n")

    def write(text, name="dev"):
        (tmp_path / f"Pulumi.{name}.yaml").write_text(text)
        return tmp_path

    return write


def refusal(action, *arguments, **keywords):
    with pytest.raises(UsageError) as caught:
        action(*arguments, **keywords)
    return str(caught.value)


def test_load_reads_the_project_around_the_working_directory(project, monkeypatch):
    deep = project(GOOD) / "a" / "b"
    deep.mkdir(parents=True)
    monkeypatch.chdir(deep)
    assert stack.load("dev").cluster.head_node.cpu == 2
    assert stack.project_directory() == deep.parent.parent.resolve()
    assert stack.names() == ["dev"]


def test_no_project_is_said_so(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    message = refusal(stack.project_directory)
    assert str(tmp_path) in message
    assert "No Pulumi.yaml" in message


def test_a_stack_file_needs_no_project_around_it(tmp_path, monkeypatch):
    (tmp_path / "Pulumi.mine.yaml").write_text(GOOD)
    deep = tmp_path / "a"
    deep.mkdir()
    monkeypatch.chdir(deep)
    assert stack.load("mine").cluster.head_node.cpu == 2
    message = refusal(stack.load, "other")
    assert "Pulumi.other.yaml" in message
    assert "--file" in message


def test_the_nearest_folder_that_has_the_file_or_is_a_project_counts(project, monkeypatch):
    inner = project(GOOD) / "inner"
    inner.mkdir()
    (inner / "Pulumi.mine.yaml").write_text(GOOD)
    monkeypatch.chdir(inner)
    assert stack.load("mine").name == "mine"
    assert stack.load("dev").name == "dev"


@pytest.mark.parametrize("owner", ["mine", "roots", "theirs"])
def test_another_users_file_above_is_not_used(project, monkeypatch, owner):
    """Whoever may write in a parent, as in /tmp, could choose the cluster."""
    folder = project(GOOD)
    deep = folder / "a"
    deep.mkdir()
    real = os.getuid()
    me = {"mine": real, "roots": real + 1, "theirs": real + 1}[owner]
    monkeypatch.setattr(stack_problems.os, "getuid", lambda: me)
    monkeypatch.setattr(stack_problems, "ROOT", real if owner == "roots" else me)
    monkeypatch.chdir(deep)
    if owner != "theirs":
        assert stack.load("dev").name == "dev"
        return
    for read in (stack.load, stack.find):
        with pytest.raises(UntrustedError, match="belongs to another user, and is above this"):
            read("dev")
    assert stack.find("other") is None  # whoever owns the project
    monkeypatch.chdir(folder)
    assert stack.load("dev").name == "dev"


def test_another_users_link_above_is_not_used(project, monkeypatch):
    folder = project(GOOD)
    link = folder / "below" / "Pulumi.dev.yaml"
    deep = link.parent / "a"
    deep.mkdir(parents=True)
    link.symlink_to(folder / "Pulumi.dev.yaml")
    lstat = Path.lstat

    def theirs(path):
        return SimpleNamespace(st_uid=os.getuid() + 1) if path == link else lstat(path)

    monkeypatch.setattr(stack_problems, "ROOT", os.getuid())
    monkeypatch.chdir(deep)
    assert stack.load("dev").name == "dev"
    monkeypatch.setattr(Path, "lstat", theirs)
    assert f"{link} belongs to another user" in refusal(stack.load, "dev")


CLUSTER = "head_node: {cpu: 3, memory_gb: 4}\n"


@pytest.mark.parametrize(
    ("file", "text", "given", "name", "target"),
    [
        ("cluster.yaml", CLUSTER, None, "cluster", "local"),
        ("cluster.yaml", CLUSTER, "mine", "mine", "local"),
        ("Pulumi.x.yaml", f"config:\n  sunspot:cluster:\n    {CLUSTER}", None, "x", "azure"),
        ("a.yml", f"config:\n  sunspot:cluster:\n    {CLUSTER}", None, "a", "azure"),
    ],
)
def test_any_file_can_describe_a_cluster(tmp_path, file, text, given, name, target):
    (tmp_path / file).write_text(text)
    found = stack.load_file(tmp_path / file, given)
    assert (found.name, found.target, found.cluster.head_node.cpu) == (name, target, 3)


def test_the_file_in_the_documentation_describes_a_cluster(tmp_path):
    text = (Path(__file__).parents[1] / "docs" / "programs.md").read_text()
    (block,) = re.findall(r"^    head_node:.*?(?=\n\n)", text, flags=re.DOTALL | re.MULTILINE)
    (tmp_path / "cluster.yaml").write_text(textwrap.dedent(block))
    found = stack.load_file(tmp_path / "cluster.yaml")
    assert (found.name, found.target, found.cluster.scaling_groups[0].max_workers) == (
        "cluster",
        "local",
        2,
    )


@pytest.mark.parametrize(
    ("file", "text", "parts"),
    [
        ("gone.yaml", None, ["gone.yaml"]),
        ("a.yaml", "head_node: {cpus: 2}\n", ["a.yaml", "cpus", "cpu"]),
        ("a.yaml", CLUSTER + "scaling_group: []\n", ["scaling_group", "scaling_groups"]),
        ("a.yaml", "- 1\n", ["a.yaml"]),
        ("my cluster.yaml", CLUSTER, ["'my cluster'", "sunspot up NAME --file 'my cluster.yaml'"]),
        ("folder", None, ["folder", "Is a directory"]),
        (".", None, ["Cannot read ."]),
        ("a.yaml", "", ["a.yaml", "config:", "head_node:"]),
        ("a.yaml", "cluster: {head_node: {cpu: 2}}\n", ["a.yaml", "config:", "head_node:"]),
        ("a.yaml", "sunspot:cluster: {}\n", ["sunspot:cluster", "config:"]),
        ("a.yaml", "cluster_name: x\nprovider: {type: aws}\nhead_node: {}\n", ["ray up"]),
        ("a.yaml", "#" * 300_000, ["a.yaml", "256 KiB"]),
    ],
)
def test_a_file_that_describes_no_cluster_is_refused(tmp_path, monkeypatch, file, text, parts):
    monkeypatch.chdir(tmp_path)
    Path("folder").mkdir()
    if text is not None:
        Path(file).write_text(text)
    message = refusal(stack.load_file, Path(file))
    assert all(part in message for part in parts), message


@pytest.mark.parametrize("name", ["cluster.yaml", "./cluster.yaml"])
def test_a_file_in_the_place_of_a_name_is_said_to_need_the_flag(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    Path(name).write_text(CLUSTER)
    assert f"sunspot up --file {name}" in refusal(stack.load, name)


def test_pulumis_own_keys_are_ignored(project):
    text = "encryptionsalt: v1:abc\nsecretsprovider: passphrase\nbackend: {x: 1}\n" + GOOD
    assert stack.load("dev", project(text)).cluster.head_node.cpu == 2


@pytest.mark.parametrize(
    ("text", "key"),
    [
        (GOOD + "sunspot:access:\n  public_ip: true\n", "sunspot:access"),
        (GOOD + "azure-native:location: uksouth\n", "azure-native:location"),
        (GOOD.replace("config", "confg"), "did you mean config?"),
    ],
)
def test_a_key_that_pulumi_would_not_hand_on_is_refused(project, text, key):
    assert key in refusal(stack.load, "dev", project(text))


@pytest.mark.parametrize("key", ["sunpot:access", "Sunspot:access", "azure_native:location"])
def test_a_misspelt_namespace_is_refused(project, key):
    message = refusal(stack.load, "dev", project(f"{GOOD}  {key}: x\n"))
    assert f"config > {key}: unknown key (did you mean" in message


@pytest.mark.parametrize("key", ["azure:location", "aws:region", "azure-native:subscriptionId"])
def test_keys_of_pulumis_providers_are_ignored(project, key):
    assert stack.load("dev", project(f"{GOOD}  {key}: x\n")).cluster.head_node.cpu == 2


@pytest.mark.parametrize(
    ("text", "fix"), [("config:\n\ta: 1\n", "spaces"), ("a: b: c\n", "indentation")]
)
def test_a_slip_in_the_indentation_comes_with_its_fix(project, text, fix):
    message = refusal(stack.load, "dev", project(text))
    assert "line" in message
    assert fix in message


def test_stack_that_does_not_exist_lists_those_that_do(project):
    folder = project(GOOD)
    project(GOOD, name="hybrid")
    message = refusal(stack.load, "hybird", folder)
    for part in ("'hybird'", str(folder), "dev, hybrid", "(did you mean hybrid?)"):
        assert part in message


def test_project_without_stacks(tmp_path):
    assert stack.names(tmp_path) == []
    assert "Pulumi.<name>.yaml" in refusal(stack.load, "dev", tmp_path)


@pytest.mark.parametrize(
    "name", ["../x", "a/b", "/etc/passwd", "", ".", "..", "a b", "x\n", "a\\b"]
)
def test_names_that_are_no_file_names_are_refused(project, name):
    assert f"{name!r} is not a stack name" in refusal(stack.load, name, project(GOOD))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", ["config > sunspot:cluster: missing"]),
        ("- a\n", ["not a mapping", "`config:`"]),
        ("config: 3\n", ["config: is not a mapping", "indent"]),
        ("config:\n  a: [1\n", ["line 3, column 1"]),
        ("config:\n\ta: 1\n", ["line 2, column 1", "cannot start any token"]),
        (
            GOOD + "    head_node: {cpu: 1, memory_gb: 2}\n",
            ["line 4, column 5: the key 'head_node'"],
        ),
        (GOOD + "config: {}\n", ["line 4, column 1: the key 'config'"]),
        ("a: !!python/object/apply:os.getcwd []\n", ["line 1, column 4", "python/object"]),
        ("a: 2024-13-45\n", ["is not YAML", "month"]),
        ("config: \x00\n", ["is not YAML"]),
        ("[" * 5000, ["is not YAML"]),
        ("config:\n  sunspot:cluster: &a [*a]\n", ["config > sunspot:cluster: "]),
    ],
)
def test_broken_files_name_the_file_and_the_place(project, text, expected):
    folder = project(text)
    message = refusal(stack.load, "dev", folder)
    assert message.startswith(f"{folder / 'Pulumi.dev.yaml'}:\n")
    for part in expected:
        assert part in message


def test_merge_keys_are_no_duplicates(project):
    text = (
        "a: &a {vm_size: D2s_v5, cpu: 2}\n"
        "config:\n  sunspot:cluster:\n    head_node: {<<: *a, cpu: 2.0}\n"
    )
    assert stack.load("dev", project(text)).cluster.head_node.cpu == 2


def test_unreadable_file_is_said_so(project, monkeypatch):
    def refuse(self, *_):
        raise PermissionError(13, "Permission denied")

    folder = project(GOOD)
    monkeypatch.setattr(Path, "open", refuse)
    message = refusal(stack.load, "dev", folder)
    assert "Permission denied" in message
    assert "Pulumi.dev.yaml" in message
