"""A project and a cluster of records for the `sunspot` command."""

import pytest
from job_api import serving
from local_stacks import WORKERS, stack, write

from sunspot.node.processes import Process
from sunspot.targets.local.target import LocalTarget
from sunspot.targets.records import STATE_DIRECTORY_VARIABLE


@pytest.fixture
def place(tmp_path, monkeypatch):
    """An empty project and an empty state directory to run in."""
    monkeypatch.setenv(STATE_DIRECTORY_VARIABLE, str(tmp_path / "state"))
    monkeypatch.setenv("COLUMNS", "120")
    project = tmp_path / "project"
    project.mkdir()
    (project / "Pulumi.yaml").write_text("name: x\nruntime: python\n")
    monkeypatch.chdir(project)
    return project


@pytest.fixture
def clusters(tmp_path):
    return LocalTarget(tmp_path / "state" / "clusters").clusters


@pytest.fixture
def cluster(clusters):
    """A cluster "dev" that is up as far as its records say, with a job API that answers."""
    with serving() as (api, port):
        folder = write(clusters, stack(WORKERS), address="127.0.0.1:1", ready_at=1.0)
        folder.update_cluster(dashboard_port=port)
        folder.token.write_text(api.token)
        folder.record_process("head", Process.current())
        yield api, folder
