"""A real Slurm for all tests, and for each a project with a stack; afterwards nothing is left."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml
from leftovers import pids_with_files_in
from machines import slurm as machine
from machines.slurm import Slurm
from sunspot_command import SunspotCommand
from waiting import wait_for

from sunspot.node.slurm.task import CLUSTER_VARIABLE

SMALL = {"cpu": 1, "memory_gb": 1}


class Project(SunspotCommand):
    """The command in a project beside a real Slurm."""

    slurm: Slurm

    def environment(self) -> dict[str, str]:
        return super().environment() | dict(self.slurm.variables)

    @property
    def shared(self) -> Path:
        return self.home / "shared"

    def write_stack(
        self, name: str = "dev", *, head: Any = None, groups: Any = None, **slurm: Any
    ) -> None:
        """Writes a stack, by default of a head and one worker of the same shape."""
        one = {"name": "workers", "min_workers": 1, "max_workers": 2, "worker_nodes": SMALL}
        config = {
            "sunspot:target": "slurm",
            "sunspot:cluster": {
                "head_node": head or SMALL,
                "scaling_groups": [one] if groups is None else groups,
                "autoscaler_config": {"cpu": 0.5, "memory_gb": 1},
            },
            "sunspot:slurm": {
                "folder": str(self.shared),
                "python": sys.executable,
                "time": "10",
                **slurm,
            },
        }
        path = self.project / f"Pulumi.{name}.yaml"
        path.write_text(yaml.safe_dump({"config": config}))

    def processes(self) -> list[int]:
        """The processes of all clusters of this project, and those with a file of theirs open."""
        found = set(pids_with_files_in(self.shared))
        for process in psutil.process_iter():
            try:
                if process.environ().get(CLUSTER_VARIABLE, "").startswith(str(self.shared)):
                    found.add(process.pid)
            except (psutil.Error, OSError):
                continue
        return sorted(found)

    def job(self, name: str = "dev") -> str:
        """The id of the newest job of a stack."""
        shown = self.slurm("squeue", "--noheader", "--states=all", "--format=%A %j")
        ids = [line.split()[0] for line in shown.splitlines() if f"sunspot-{name}-" in line]
        return max(ids, key=int)


@pytest.fixture(scope="session")
def slurm() -> Iterator[Slurm]:
    machine.need()
    with machine.slurm() as made:
        yield made


@pytest.fixture
def project(slurm: Slurm, tmp_path: Path) -> Iterator[Project]:
    made = Project(project=tmp_path / "p", state=tmp_path / "s", home=tmp_path / "h")
    object.__setattr__(made, "slurm", slurm)  # the class it derives from is frozen
    for folder in (made.project, made.home):
        folder.mkdir()
    (made.project / "Pulumi.yaml").write_text("name: test\nruntime: python\n")
    made.write_stack()
    yield made
    for name in machine.NODES:
        slurm("scontrol", "update", f"nodename={name}", "state=resume", check=False)
    for name in ("dev", "other"):
        made("down", name)
    slurm("scancel", "--user", "root", check=False)
    wait_for("every process to end", lambda: not made.processes(), 90, seen=lambda: str(made))


def pytest_itemcollected(item: pytest.Item) -> None:
    item.add_marker(pytest.mark.timeout(600))
