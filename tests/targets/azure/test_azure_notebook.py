"""`sunspot notebook` of a cluster on Azure: JupyterLab runs on its head."""

from __future__ import annotations

from contextlib import contextmanager

import pytest
from azure_stacks import run, up

from sunspot.cli import head_commands
from sunspot.targets.azure.target import AzureTarget
from sunspot.targets.head_notebook import HeadNotebook

URL = "http://127.0.0.1:8899/lab?token=abc"


@pytest.fixture
def asked(monkeypatch):
    """What JupyterLab on a head was asked with; it ends at the second look."""
    found, looks = [], iter([True, False])

    @contextmanager
    def notebook(_target, name, arguments, progress):
        found.append((name, list(arguments)))
        progress("starting")
        yield HeadNotebook(url=URL, folder="/tmp/ray/notebooks", is_open=lambda: next(looks))  # noqa: S108
        found.append("ended")

    monkeypatch.setattr(AzureTarget, "notebook", notebook)
    monkeypatch.setattr(head_commands, "FORWARD_POLL_S", 0.01)
    return found


def test_it_prints_the_link_and_waits_for_the_end(place, asked):
    up(place)
    result = run("notebook", "x", "--", "--ServerApp.root_dir=/tmp")
    assert result.exit_code == 0, result.output
    assert result.stdout == f"{URL}\n"
    assert "/tmp/ray/notebooks" in result.stderr  # noqa: S108
    assert asked == [("x", ["--ServerApp.root_dir=/tmp"]), "ended"]


def test_here_it_runs_on_this_machine(place, asked, monkeypatch):
    up(place)
    monkeypatch.setattr("sunspot.notebooks.importlib.util.find_spec", lambda _: None)
    result = run("notebook", "x", "--here")
    assert result.exit_code == 2
    assert "jupyterlab" in result.stderr
    assert asked == []


def test_a_head_whose_ray_does_not_run_is_an_error(place, sshd):
    up(place)
    sshd.stub("docker", "echo 'No such container: sunspot-ray' >&2; exit 1")
    result = run("notebook", "x")
    assert result.exit_code == 1
    assert "No such container: sunspot-ray" in result.stderr
