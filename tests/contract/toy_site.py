"""The toy target as a site of the contract: real Ray, a target from outside the package."""

from __future__ import annotations

import sys
from pathlib import Path

from sites import Site, folders, temp_dirs
from toy_target import ToyTarget

from sunspot.targets.records import Folders

STAGES = ("the head has started",)


def toy_site(root: Path) -> Site:
    clusters = root / "state" / "toy"
    return Site(
        place=ToyTarget(Folders(clusters)),
        **folders(root),
        cluster={"head_node": {"cpu": 1, "memory_gb": 2}},
        stages=STAGES,
        program=(sys.executable, str(Path(__file__).with_name("with_toy.py"))),
        records="toy",
        record_file="cluster.json",
        temp_dirs=temp_dirs(clusters),
    )
