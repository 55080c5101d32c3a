"""A real Slurm for all tests, and for each a project; afterwards nothing is left."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from machines import slurm as machine
from machines.slurm import Slurm
from slurm_project import Project

# Beside the one of the contract, whose jobs begin with 1 and are fewer than this (.ci/slurm).
FIRST_JOB = 126


@pytest.fixture(scope="session")
def slurm() -> Iterator[Slurm]:
    machine.need()
    with machine.slurm(FIRST_JOB) as made:
        yield made


@pytest.fixture(autouse=True)
def python_on_the_path(monkeypatch: pytest.MonkeyPatch) -> None:
    """The command's `python3` is the one that has Ray."""
    folder = Path(sys.executable).parent
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")


@pytest.fixture
def project(slurm: Slurm, tmp_path: Path) -> Iterator[Project]:
    made = Project(project=tmp_path / "p", state=tmp_path / "s", home=tmp_path / "h", slurm=slurm)
    for folder in (made.project, made.home):
        folder.mkdir()
    (made.project / "Pulumi.yaml").write_text("name: test\nruntime: python\n")
    made.write_stack()
    yield made
    for name in machine.NODES:
        slurm("scontrol", "update", f"nodename={name}", "state=resume", check=False)
    for record in (made.state / "slurm").glob("[!.]*/"):
        made("down", record.name)
    slurm("scancel", "--user", "root", check=False)
    made.wait_until_gone()


def pytest_itemcollected(item: pytest.Item) -> None:
    item.add_marker(pytest.mark.timeout(900))
