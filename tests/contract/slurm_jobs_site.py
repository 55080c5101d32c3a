"""Slurm as a site of the contract: real Ray in the jobs of a stand-in, or of a real Slurm.

It is the real one where SLURM_CONF names its configuration (tests/real/machines/slurm.py).
"""

from __future__ import annotations

import atexit
import os
import shutil
import sys
import tempfile
from pathlib import Path

import pytest
import stand_in_slurm
from sites import ONE_WORKER, Site, folders

from sunspot.targets.records import Folders
from sunspot.targets.slurm.records import CLUSTER_FILE, Records
from sunspot.targets.slurm.target import SlurmTarget

STAGES = ("submitted job", "the head is up")

REAL = "SLURM_CONF"
# Set by CI, which runs these tests in the jobs of a real one.
NEED_REAL = "SUNSPOT_TESTS_NEED_SLURM"
needs_its_turn = pytest.mark.skipif(
    NEED_REAL in os.environ and REAL not in os.environ, reason="a real Slurm runs it: .ci/slurm"
)


def slurm_jobs_site(root: Path) -> Site:
    # The paths of Ray's sockets must be short.
    scratch = Path(tempfile.mkdtemp(prefix="ss-", dir="/tmp"))
    atexit.register(shutil.rmtree, scratch, ignore_errors=True)
    variables = {}
    if REAL not in os.environ:
        # What it remembers of jobs outlives them, so it lies elsewhere.
        nodes = {"main": {"nodes": ["n1", "n2", "n3", "n4"]}}
        variables = stand_in_slurm.install(root.with_name(f"{root.name}-slurm"), nodes)
    return Site(
        place=SlurmTarget(Records(Folders(root / "state" / "slurm"))),
        **folders(root),
        cluster=ONE_WORKER,
        config={
            "sunspot:slurm": {
                "folder": str(root / "shared"),
                "scratch": str(scratch),
                "python": sys.executable,
            }
        },
        stages=STAGES,
        records="slurm",
        record_file=CLUSTER_FILE,
        variables=variables,
        temp_dirs=(scratch,),
    )
