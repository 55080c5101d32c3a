"""This machine as a site of the contract: real Ray."""

from __future__ import annotations

from pathlib import Path

from sites import Site, folders, temp_dirs

from sunspot.targets.local.target import LocalTarget

STAGES = ("GCS answers", "ready")

SMALL = {"cpu": 1, "memory_gb": 2}


def local_site(root: Path) -> Site:
    clusters = root / "state" / "clusters"
    return Site(
        place=LocalTarget(clusters),
        **folders(root),
        cluster={
            "head_node": SMALL,
            "scaling_groups": [
                {
                    "name": "workers",
                    "market": "spot",
                    "min_workers": 1,
                    "max_workers": 2,
                    "worker_nodes": SMALL,
                }
            ],
            "autoscaler_config": {"cpu": 0.5, "memory_gb": 1},
        },
        stages=STAGES,
        records="clusters",
        record_file="cluster.json",
        temp_dirs=temp_dirs(clusters),
    )
