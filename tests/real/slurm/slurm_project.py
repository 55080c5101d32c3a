"""The `sunspot` command in a project beside a real Slurm."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import yaml
from leftovers import pids_with_files_in
from machines.slurm import Slurm
from sunspot_command import SunspotCommand
from waiting import wait_for

from sunspot.node.slurm.task import CLUSTER_VARIABLE

SMALL = {"cpu": 1, "memory_gb": 2}


@dataclass(frozen=True, kw_only=True)
class Project(SunspotCommand):
    """The command in a project with a stack `dev`."""

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

    def wait_until_gone(self) -> None:
        """Returns when no process of a cluster is left; Ray's agents end seconds after the rest."""
        wait_for("every process to end", lambda: not self.processes(), 120)

    def job(self, name: str = "dev") -> str:
        """The id of the newest job of a stack."""
        shown = self.slurm("squeue", "--noheader", "--states=all", "--format=%A %j")
        ids = [line.split()[0] for line in shown.splitlines() if f"sunspot-{name}-" in line]
        return max(ids, key=int)
