"""The `sunspot` command's help and completion."""

import os
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest
from typer.core import TyperGroup
from typer.main import get_command
from typer.testing import CliRunner

from sunspot.cli.app import app

COMMANDS = [
    "up",
    "down",
    "status",
    "submit",
    "run",
    "jobs",
    "logs",
    "stop",
    "timeline",
    "report",
    "top",
    "dashboard",
    "notebook",
    "serve",
    "ssh",
    "forward",
    "rsync",
    "scale",
    "evict",
    "events",
    "suspend",
    "start",
    "keep-alive",
    "demo",
    "preview",
    "bake",
    "sizes",
    "schema",
    "doctor",
    "manifest",
]


@pytest.fixture(autouse=True)
def wide(monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")


def run(*arguments):
    return CliRunner().invoke(app, list(arguments))


def test_the_commands_are_those_that_are_tested_here():
    command = get_command(app)
    assert isinstance(command, TyperGroup)
    assert set(command.commands) == set(COMMANDS)


@pytest.mark.parametrize("flag", ["--help", "-h"])
@pytest.mark.parametrize("command", COMMANDS)
def test_help_of_every_command_shows_an_example(command, flag):
    result = run(command, flag)
    assert result.exit_code == 0
    assert f"Example: sunspot {command}" in result.stdout


@pytest.mark.parametrize("command", ["deploy", "status"])
def test_help_of_the_commands_of_serve_shows_an_example(command):
    result = run("serve", command, "--help")
    assert result.exit_code == 0
    assert f"Example: sunspot serve {command}" in result.stdout


@pytest.mark.parametrize("command", COMMANDS)
def test_usage_shows_each_bracket_once(command):
    usage = next(line for line in run(command, "--help").stdout.splitlines() if "Usage:" in line)
    assert "[[" not in usage


@pytest.mark.parametrize("arguments", [["--help"], ["-h"]])
def test_help_lists_every_command_and_how_to_start(arguments):
    result = run(*arguments)
    assert result.exit_code == 0
    assert all(command in result.stdout for command in COMMANDS)
    assert "sunspot up dev" in result.stdout


def test_no_command_shows_the_help():
    result = run()
    assert "sunspot up dev" in result.output
    assert result.exit_code == 2


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_completion_script_is_made(shell, monkeypatch):
    monkeypatch.setenv("_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION", "1")
    result = run("--show-completion", shell)
    assert result.exit_code == 0, result.output
    assert "sunspot" in result.stdout
    assert "_SUNSPOT_COMPLETE" in result.stdout


def test_completion_knows_the_commands():
    done = subprocess.run(
        [str(Path(sys.executable).with_name("sunspot"))],
        env=os.environ
        | {
            "_SUNSPOT_COMPLETE": "complete_bash",
            "COMP_WORDS": "sunspot st",
            "COMP_CWORD": "1",
        },
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert set(done.stdout.split()) == {"start", "status", "stop"}, done.stdout + done.stderr


def test_version_names_sunspot_ray_and_python_in_one_line():
    result = run("--version")
    assert result.exit_code == 0
    (line,) = result.stdout.splitlines()
    for version in (
        metadata.version("sunspot-ray"),
        metadata.version("ray"),
        sys.version.split()[0],
    ):
        assert version in line
