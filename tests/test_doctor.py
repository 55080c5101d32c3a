"""`sunspot doctor`: what it prints of a target's findings, and its exit code."""

import io
import json
from types import SimpleNamespace

import pytest
from local_stacks import WORKERS, stack
from rich.console import Console
from typer.testing import CliRunner

from sunspot import doctor as view
from sunspot import stack as stacks
from sunspot.cli.app import app
from sunspot.targets import clusters
from sunspot.targets.protocol import Finding

OK = Finding(check="cores", level="ok", detail="2")
WARNING = Finding(check="memory", level="warning", detail="[4] GiB", remedy="free some")
FAILURE = Finding(check="ports", level="failure", detail="none", remedy="stop [some] server")


@pytest.fixture
def findings(monkeypatch):
    """What the target of the stack "dev" finds."""
    found = []
    target = SimpleNamespace(name="fake", preconditions=lambda _stack, _progress: found)
    monkeypatch.setattr(stacks, "load", lambda _: stack(WORKERS))
    monkeypatch.setattr(clusters, "get", lambda _: target)
    return found


def doctor(*arguments):
    return CliRunner().invoke(app, ["doctor", *arguments], env={"COLUMNS": "60"})


@pytest.mark.parametrize(
    ("of", "code"), [([], 0), ([OK], 0), ([OK, WARNING], 0), ([FAILURE, OK], 1), ([FAILURE] * 2, 1)]
)
def test_only_a_failure_is_exit_code_1(findings, of, code):
    findings += of
    assert doctor().exit_code == code
    assert doctor("--json").exit_code == code


def test_each_finding_is_a_line_with_its_remedy_below(findings):
    findings += [OK, WARNING, FAILURE]
    lines = [line.split() for line in doctor().stdout.splitlines()]
    assert lines[0] == ["ok", "cores", "2"]
    assert lines[1] == ["warning", "memory", "[4]", "GiB"]
    assert lines[2] == ["free", "some"]
    assert lines[3:5] == [["failure", "ports", "none"], ["stop", "[some]", "server"]]
    assert lines[5] == ["dev", "on", "fake:", "1", "failure,", "1", "warning"]


@pytest.mark.parametrize("width", [40, 60, 100])
def test_a_terminal_shows_long_findings_in_lines_and_the_command_in_one(width):
    detail = "a word and " * 12 + "`one command`"
    long = Finding(check="a long name", level="warning", detail=detail, remedy="mend " * 30)
    found = view.Diagnosis(stack="dev", target="fake", findings=[OK, long])
    text = io.StringIO()
    view.show(
        found,
        Console(file=text, width=width, soft_wrap=True, force_terminal=True, color_system=None),
    )
    lines = text.getvalue().splitlines()
    (command,) = [line for line in lines if "mend" in line]
    assert command.strip() == long.remedy.strip()
    assert max(len(line) for line in lines if line != command) <= width
    assert any("`one command`" in line for line in lines)
    assert " ".join(" ".join(lines).split()).count("a word and") == 12


def test_json_has_the_stack_the_target_and_each_finding(findings):
    findings.append(WARNING)
    assert json.loads(doctor("--json").stdout) == {
        "stack": "dev",
        "target": "fake",
        "findings": [
            {"check": "memory", "level": "warning", "detail": "[4] GiB", "remedy": "free some"}
        ],
    }


def test_a_target_that_cannot_check_anything_is_wrong_use(findings, monkeypatch):
    monkeypatch.setattr(clusters, "get", lambda _: SimpleNamespace(name="blind"))
    result = doctor()
    assert result.exit_code == 2
    assert "blind" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "named"), [(["no-such"], "no-such"), (["dev", "--target", "moon"], "moon")]
)
def test_a_wrong_name_is_wrong_use(tmp_path, monkeypatch, arguments, named):
    (tmp_path / "Pulumi.yaml").write_text("name: x\nruntime: python\n")
    cluster = "head_node: {cpu: 1, memory_gb: 2}, autoscaler_config: {cpu: 0.5, memory_gb: 1}"
    (tmp_path / "Pulumi.dev.yaml").write_text(
        f"config:\n  sunspot:target: local\n  sunspot:cluster: {{{cluster}}}\n"
    )
    monkeypatch.chdir(tmp_path)
    result = doctor(*arguments)
    assert result.exit_code == 2
    assert named in result.stderr
