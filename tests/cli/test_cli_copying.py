"""What a person copies from a terminal of 60 columns: whole lines, values quoted for a shell."""

import shlex
import subprocess
import sys

import pytest
from job_api import serving
from local_stacks import WORKERS, stack, write
from terminal import shown
from typer.main import get_command
from typer.testing import CliRunner

from sunspot.cli.app import app
from sunspot.cli.base import print_handle
from sunspot.node.processes import Process
from sunspot.targets import clusters
from sunspot.targets.local.target import LocalTarget
from sunspot.targets.records import STATE_DIRECTORY_VARIABLE

COLUMNS = "60"
LONG_ID = "a-job-whose-name-is-as-long-as-people-make-them-2026-11-22-run-7"
STACK = """config:
  sunspot:target: local
  sunspot:cluster:
    head_node: {cpu: 2, memory_gb: 4}
    scaling_groups:
      - {name: workers, market: spot, min_workers: 0, max_workers: 4,
         worker_nodes: {cpu: 2, memory_gb: 4}}
    autoscaler_config: {cpu: 0.5, memory_gb: 1}
    ray_version: 2.60.0
"""


@pytest.fixture(autouse=True)
def cluster(tmp_path, monkeypatch):
    """A cluster "dev" that is up as far as its records say; a space is in every path of it."""
    monkeypatch.setenv("COLUMNS", COLUMNS)
    monkeypatch.setenv(STATE_DIRECTORY_VARIABLE, str(tmp_path / "my state"))
    (tmp_path / "Pulumi.yaml").write_text("name: x\nruntime: python\n")
    (tmp_path / "Pulumi.dev.yaml").write_text(STACK)
    monkeypatch.chdir(tmp_path)
    clusters = LocalTarget(tmp_path / "my state" / "clusters").clusters
    with serving() as (api, port):
        folder = write(clusters, stack(WORKERS), address="127.0.0.1:1", ready_at=1.0)
        folder.update_cluster(dashboard_port=port)
        folder.token.write_text(api.token)
        folder.record_process("head", Process.current())
        yield api, folder


def in_terminal(*arguments):
    return shown([sys.executable, "-m", "sunspot.cli", *arguments])


def test_the_lines_of_up_work_when_they_are_copied(cluster):
    _, folder = cluster
    lines = [line.strip() for line in in_terminal("up", "dev").splitlines()]
    exports = [line for line in lines if line.startswith("export ")]
    script = "\n".join([*exports, 'echo "$RAY_AUTH_TOKEN_PATH"'])
    done = subprocess.run(["/bin/sh", "-eu", "-c", script], capture_output=True, text=True)
    assert done.stdout.strip() == str(folder.token), done.stderr
    assert "ray job submit --working-dir . -- python mine.py" in lines
    (hint,) = [line for line in lines if line.startswith("next: ")]
    assert "sunspot submit -- python mine.py" in hint
    assert hint.endswith("sunspot down dev")


def test_the_next_command_of_up_names_the_stack_where_another_is_up(cluster):
    _, folder = cluster
    other = stack(WORKERS, name="other")
    write(folder.path.parent, other, address="127.0.0.1:2", ready_at=1.0)
    lines = [line.strip() for line in in_terminal("up", "dev").splitlines()]
    (hint,) = [line for line in lines if line.startswith("next: ")]
    assert hint.startswith("next: sunspot submit --stack dev -- python mine.py")
    assert hint.endswith("sunspot down dev")


def test_the_next_commands_of_up_name_the_target_where_the_stack_is_up_on_two(
    cluster, monkeypatch, capsys
):
    target = LocalTarget(cluster[1].path.parent)
    monkeypatch.setattr(clusters, "running", lambda: [clusters.Cluster(target, "dev")] * 2)
    print_handle(target.handle("dev"))
    assert capsys.readouterr().err.strip() == (
        "next: sunspot submit --stack dev --target local -- python mine.py · "
        "sunspot down dev --target local"
    )


def test_the_line_that_prints_the_token_works_when_it_is_copied(cluster):
    _, folder = cluster
    lines = in_terminal("dashboard").splitlines()
    (command,) = [line for line in lines if line.strip().startswith("cat ")]
    assert shlex.split(command) == ["cat", str(folder.token)]


@pytest.mark.parametrize("command", ["jobs", "status"])
def test_a_jobs_id_is_shown_whole(cluster, command):
    api, _ = cluster
    api.add(LONG_ID, "SUCCEEDED", start_time=1_000, end_time=2_000)
    assert LONG_ID in in_terminal(command)


def test_the_hints_about_a_job_are_one_line(cluster):
    line = in_terminal("submit", "--detach", "--name", LONG_ID, "--", "true")
    assert f"sunspot logs {LONG_ID} -f · stop it: sunspot stop {LONG_ID}\n" in line


@pytest.mark.parametrize("name", sorted(get_command(app).commands))  # type: ignore[attr-defined]
def test_each_example_of_a_command_is_a_line_of_its_own(name):
    examples = get_command(app).commands[name].epilog  # type: ignore[attr-defined]
    text = CliRunner().invoke(app, [name, "--help"]).stdout
    lines = [line.rstrip() for line in text.splitlines()]
    for example in examples.splitlines():
        assert f" {example}" in lines
        assert example.count("sunspot ") == 1


@pytest.mark.parametrize("name", ["", *sorted(get_command(app).commands)])  # type: ignore[attr-defined]
def test_help_shows_the_names_of_the_options_uncut(name):
    text = CliRunner().invoke(app, [*name.split(), "--help"]).stdout
    assert "--help" in text
    assert "…" not in text
