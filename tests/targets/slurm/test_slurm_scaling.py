"""Jobs that join a cluster, counted and given up while they still wait for nodes."""

from __future__ import annotations

import pytest
import stand_in_slurm
from slurm_site import SMALL, group

from sunspot.errors import UsageError
from sunspot.stack import Stack
from sunspot.targets.scaling import Size
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

    def states_after(least: int, most: int | None = None) -> list[str]:
        life, (workers,) = Life(Slurm(), record), stack.cluster.scaling_groups
        size, connect = Size(minimum=least, maximum=most), lambda: pytest.fail("nothing joins")
        scaling.scale(life, stack, workers, size, connect, print)
        return [job["state"] for job in stand_in_slurm.jobs(folder)]

    assert states_after(4) == ["PENDING", "PENDING", "PENDING"]
    assert scaling.sizes(Life(Slurm(), record), stack) == {"workers": Size(minimum=4)}
    assert states_after(1, 4) == ["PENDING", "PENDING", "PENDING"]
    assert states_after(1, 2) == ["PENDING", "CANCELLED", "CANCELLED"]
    assert states_after(1) == ["CANCELLED", "CANCELLED", "CANCELLED"]


@pytest.mark.parametrize(
    ("size", "told"), [(Size(minimum=0), "0"), (Size(minimum=1, maximum=5), "1:5")]
)
def test_a_size_outside_the_stack_is_refused_with_its_limits(size, told):
    cluster = {"head_node": SMALL, "scaling_groups": [group(maximum=1)]}
    stack = Stack.parse({"sunspot:cluster": cluster}, name="dev")
    with pytest.raises(UsageError, match=f"workers={told} is outside 1 to 1.*Pulumi.dev.yaml"):
        scaling.check(stack, "workers", size)
