"""One host as a site of the contract: a real engine with the Compose plugin, real Ray."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from compose_engine import Behind
from machines.network import network_of
from machines.processes import DEADLINE_S
from sites import STACKS, Site, folders

from sunspot.targets.compose import plan
from sunspot.targets.compose.engine import Engine
from sunspot.targets.compose.records import Records
from sunspot.targets.compose.target import ComposeTarget

STAGES = ("starting the containers", "the containers are healthy")

SMALL = {"cpu": 1, "memory_gb": 2}

# Volumes that `down` keeps on purpose.
KEPT = ("s3", "prometheus", "notebooks")


def compose_site(root: Path, behind: Behind, image: str, others: dict[str, str]) -> Site:
    """The site, in `root`.

    Args:
        root: an empty folder.
        behind: the engine.
        image: the image of the nodes, which the engine has.
        others: the images of what is beside them, by service.
    """
    engine = Engine(f"unix://{behind.docker.socket}")
    where = folders(root)
    return Site(
        place=ComposeTarget(Records(root / "state" / "compose")),
        **where,
        cluster=cluster("workers"),
        config=config(image, others),
        stages=STAGES,
        records="compose",
        record_file="cluster.json",
        program=(*behind.enter, sys.executable, "-m", "sunspot.cli"),
        variables=behind.variables(where["home"]),
        elsewhere=lambda: _there(engine),
        network=lambda: network_of(behind.pid),
    )


@contextlib.contextmanager
def up(site: Site, name: str, cluster: dict[str, Any], settings: dict[str, Any]) -> Iterator[Site]:
    """The site with a cluster of other settings, of which nothing stays."""
    made = Site(**{**vars(site), "config": settings})
    made.write_stack(name, cluster)
    try:
        made.ok("up", name, timeout=DEADLINE_S)
        yield made
    finally:
        made.ok("down", name, "--volumes")
        (made.project / f"Pulumi.{name}.yaml").unlink()


def cluster(group: str, *, gpus: int = 0, minimum: int = 1, maximum: int = 2) -> dict[str, Any]:
    """A head and a group of small workers."""
    return {
        "head_node": SMALL,
        "scaling_groups": [
            {
                "name": group,
                "market": "spot",
                "min_workers": minimum,
                "max_workers": maximum,
                "worker_nodes": {**SMALL, "gpu_count": gpus},
            }
        ],
        "autoscaler_config": {"cpu": 0.5, "memory_gb": 1},
    }


def config(image: str, others: dict[str, str], **host: Any) -> dict[str, Any]:
    """The rest of a stack file."""
    return {
        "sunspot:image": {"reference": image},
        "sunspot:compose": {"images": others, "jupyter": "jupyter" in others, **host},
    }


def _there(engine: Engine) -> list[str]:
    """What the engine has of the stacks' projects, without the volumes that are kept."""
    found = []
    for name in STACKS:
        project = plan.project(name)
        found += engine.left(project)
        found += [one for one in engine.volumes(project) if not one.endswith(KEPT)]
    return found
