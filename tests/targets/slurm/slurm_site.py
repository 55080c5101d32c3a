"""The `sunspot` command beside a stand-in for Slurm, whose nodes start a stand-in for Ray."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import stand_in_slurm
import yaml
from sunspot_command import SunspotCommand

from sunspot.node.slurm.task import CLUSTER_VARIABLE

STAND_IN_RAY = Path(stand_in_slurm.__file__).with_name("stand_in_ray")
# Python whose Ray is the stand-in; `metadata` still finds the version of the real one.
PYTHON = f"PYTHONPATH={STAND_IN_RAY} {sys.executable}"
SMALL = {"cpu": 1, "memory_gb": 2}


def group(name: str = "workers", minimum: int = 1, maximum: int = 2, **node: Any) -> dict[str, Any]:
    """A group as a stack file has it."""
    return {
        "name": name,
        "min_workers": minimum,
        "max_workers": maximum,
        "worker_nodes": SMALL | node,
    }


@dataclass(frozen=True, kw_only=True)
class SlurmSite(SunspotCommand):
    """One Slurm cluster with a project; all that it runs is in `root`."""

    root: Path
    variables: Mapping[str, str]

    @property
    def slurm(self) -> Path:
        return self.root / "slurm"

    @property
    def shared(self) -> Path:
        return self.root / "shared"

    def environment(self) -> dict[str, str]:
        return super().environment() | dict(self.variables)

    def write_stack(self, name: str = "dev", *, groups: Any = None, **settings: Any) -> None:
        """Writes a stack of a small head and these groups, by default one worker."""
        cluster = {
            "head_node": SMALL,
            "scaling_groups": [group()] if groups is None else groups,
            "autoscaler_config": {"cpu": 0.5, "memory_gb": 1},
        }
        slurm = {
            "folder": str(self.shared),
            "scratch": "/tmp",  # noqa: S108 - each node makes a folder of its own in it
            "python": f"env {PYTHON}",
            "time": "1:00:00",
            **settings,
        }
        config = {
            "sunspot:target": "slurm",
            "sunspot:cluster": cluster,
            "sunspot:slurm": slurm,
        }
        path = self.project / f"Pulumi.{name}.yaml"
        path.write_text(yaml.safe_dump({"config": config}))

    def jobs(self) -> list[dict[str, Any]]:
        """All jobs that Slurm ever had."""
        return stand_in_slurm.jobs(self.slurm)

    def processes(self) -> list[psutil.Process]:
        """The processes of the jobs' nodes."""
        return [one for one in psutil.process_iter() if self._is_ours(one)]

    def _is_ours(self, process: psutil.Process) -> bool:
        try:
            variables = process.environ()
            return (
                variables.get(CLUSTER_VARIABLE, "").startswith(str(self.shared))
                and process.status() != psutil.STATUS_ZOMBIE
            )
        except (psutil.Error, OSError):
            return False

    def slurm_command(self, *words: str, text: str = "") -> str:
        """What one of Slurm's commands prints, called by hand in the project."""
        return subprocess.run(
            [str(self.slurm / "bin" / words[0]), *words[1:]],
            input=text,
            env=self.environment(),
            cwd=self.project,
            capture_output=True,
            text=True,
            check=True,
        ).stdout

    def tokens(self) -> list[Path]:
        """The files of tokens that are left."""
        return list(self.shared.glob("*/token"))


def make(root: Path, partitions: dict[str, dict[str, Any]] | None = None) -> SlurmSite:
    """A site with a stack `dev`; by default its Slurm has one partition with four nodes."""
    nodes = {"main": {"nodes": ["n1", "n2", "n3", "n4"], "limit": "2:00:00"}}
    variables = stand_in_slurm.install(root / "slurm", partitions or nodes)
    site = SlurmSite(
        project=root / "project",
        state=root / "state",
        home=root / "home",
        root=root,
        variables=variables | {"TMPDIR": os.environ.get("TMPDIR", "/tmp")},  # noqa: S108
    )
    for folder in (site.project, site.home):
        folder.mkdir()
    (site.project / "Pulumi.yaml").write_text("name: test\nruntime: python\n")
    site.write_stack()
    return site
