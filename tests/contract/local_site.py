"""This machine as a site of the contract: real Ray."""

from __future__ import annotations

from pathlib import Path

from sites import ONE_WORKER, Site, folders, temp_dirs

from sunspot.targets.local.target import LocalTarget

STAGES = ("GCS answers", "ready")


def local_site(root: Path) -> Site:
    clusters = root / "state" / "clusters"
    return Site(
        place=LocalTarget(clusters),
        **folders(root),
        cluster=ONE_WORKER,
        stages=STAGES,
        records="clusters",
        record_file="cluster.json",
        temp_dirs=temp_dirs(clusters),
    )
