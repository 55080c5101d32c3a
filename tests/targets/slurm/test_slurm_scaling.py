"""Jobs that join a cluster, counted and given up while they still wait for nodes."""

from __future__ import annotations

import pytest
import stand_in_slurm
from slurm_site import SMALL, group

from sunspot.stack import Stack
from sunspot.targets.slurm import scaling
from sunspot.targets.slurm.commands import Slurm
from sunspot.targets.slurm.life import Life
from sunspot.targets.slurm.records import JobRecord

JOINING = "sunspot-dev-1-workers"


def test_workers_that_still_wait_are_counted_and_given_up(tmp_path, monkeypatch):
    """A `scale` that was killed leaves such jobs."""
    folder = tmp_path / "slurm"
    for name, value in stand_in_slurm.install(folder, {"main": {}}).items():
        monkeypatch.setenv(name, value)
    (folder / "hold").touch()
    cluster = {
        "head_node": SMALL,
        "scaling_groups": [group(maximum=4)],
        "autoscaler_config": {"cpu": 0.5, "memory_gb": 1},
    }
    stack = Stack.parse({"sunspot:cluster": cluster}, name="dev")
    record = JobRecord(
        name="sunspot-dev-1", joining={"workers": JOINING}, folder=str(tmp_path), login_host=None
    )
    Slurm().submit(f"#!/bin/bash\n#SBATCH --array=1-3\n#SBATCH --job-name={JOINING}\n")

    def states_after(count: int) -> list[str]:
        life, (workers,) = Life(Slurm(), record), stack.cluster.scaling_groups
        scaling.scale(life, stack, workers, count, lambda: pytest.fail("nothing joins"), print)
        return [job["state"] for job in stand_in_slurm.jobs(folder)]

    assert states_after(4) == ["PENDING", "PENDING", "PENDING"]
    assert states_after(2) == ["PENDING", "CANCELLED", "CANCELLED"]
    assert states_after(1) == ["CANCELLED", "CANCELLED", "CANCELLED"]
