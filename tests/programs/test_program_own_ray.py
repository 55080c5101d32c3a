"""A program that starts a Ray of its own within a job."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from harness import Sunspot
from sunspot_command import DEADLINE_S

from sunspot.ray.handle import ClusterHandle

Brought = Callable[[str], Path]
PROGRAM = "starts_its_own_ray.py"


def test_a_ray_of_its_own_runs_beside_the_cluster_or_is_told_how(
    sunspot: Sunspot, cluster: ClusterHandle, brought: Brought
):
    folder = ("--working-dir", str(brought(PROGRAM).parent))
    without_files = ("env", "-u", "RAY_JOB_CONFIG_JSON_ENV_VAR", "python", PROGRAM)
    with sunspot.started("submit", *folder, "--", "python", PROGRAM) as as_brought:
        apart = sunspot("submit", *folder, "--", *without_files, timeout=2 * DEADLINE_S)
        out, err = as_brought.communicate(timeout=2 * DEADLINE_S)
    assert apart.returncode == 0, apart.stdout + apart.stderr
    assert "12 on 1 node of its own" in apart.stdout
    assert as_brought.returncode == 1, out + err
    assert " ".join(without_files[:3]) in " ".join(err.split())
    assert sunspot.ok("status", cluster.name)  # its own state was not touched
