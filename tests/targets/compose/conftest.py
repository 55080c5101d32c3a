"""A target whose `docker` is a stand-in, and whose Ray says what its containers do."""

import shlex
import sys
import sysconfig
from pathlib import Path

import pytest
from compose_stacks import COURSE
from stand_in_docker import FOLDER, LIBRARIES, StandIn

from sunspot.targets.compose import containers
from sunspot.targets.compose.records import Records
from sunspot.targets.compose.target import ComposeTarget
from sunspot.targets.protocol import silent

HERE = Path(__file__).parent


class Tools:
    """A folder that is all of the PATH."""

    def __init__(self, folder):
        self.folder = folder

    def add(self, name, script):
        path = self.folder / name
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)


@pytest.fixture
def tools(tmp_path, monkeypatch):
    folder = tmp_path / "tools"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    (folder / "cat").symlink_to("/bin/cat")
    for name in ("DOCKER_HOST", "DOCKER_CONTEXT", "COMPOSE_FILE"):
        monkeypatch.delenv(name, raising=False)
    return Tools(folder)


@pytest.fixture
def docker(tools, tmp_path, monkeypatch):
    """The stand-in, which is on the PATH."""
    folder = tmp_path / "engine"
    folder.mkdir()
    monkeypatch.setenv(FOLDER, str(folder))
    monkeypatch.setenv(LIBRARIES, sysconfig.get_path("purelib"))
    command = shlex.join([sys.executable, "-I", "-S", str(HERE / "stand_in_docker.py")])
    tools.add("docker", f'exec {command} "$@"')
    return lambda: StandIn(folder)


@pytest.fixture
def target(docker, tmp_path, monkeypatch):
    """The target, in a project of its own."""
    project = tmp_path / "project"
    project.mkdir()
    (project / "Pulumi.yaml").touch()
    monkeypatch.chdir(project)

    def alive(_handle):
        running = [one for one in docker().state["container"].values() if one["state"] == "running"]
        return [
            {"node_name": one["service"], "state": "ALIVE", "node_ip": "172.18.0.2"}
            for one in running
        ]

    monkeypatch.setattr(containers, "members", alive)
    return ComposeTarget(Records(tmp_path / "state" / "compose"))


@pytest.fixture
def up(target):
    """The target with the course's cluster."""
    target.up(COURSE, silent)
    return target
