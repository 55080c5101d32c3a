"""Azure as a site of the contract: stand-ins for Pulumi and `az`; SSH, tunnel and Ray are real."""

from __future__ import annotations

import json
import os
import shlex
import sys
from pathlib import Path

from sites import STACKS, Site, folders, temp_dirs
from ssh_server import make_key
from stand_in_azure import CLOUD
from stand_in_pulumi import KEY, STATE

from sunspot.targets.azure import create

# Pulumi has made everything, and the head boots. Earlier moments are tried with the real engine
# (tests/real/engine/test_sunspot_up.py).
STAGES = ("created VirtualMachineScaleSet",)

HERE = Path(__file__).parent
SIZE = {"vm_size": "Standard_D2s_v5"}


def azure_site(root: Path) -> Site:
    # What Pulumi remembers outlives its resources, so it lies elsewhere.
    pulumi, tools = root.with_name(f"{root.name}-pulumi"), root.with_name(f"{root.name}-tools")
    pulumi.mkdir()
    tools.mkdir()
    _write_tool(tools / "pulumi", "stand_in_pulumi")
    _write_tool(tools / "az", "stand_in_azure")
    key = make_key(tools / "key")
    cloud = root / "azure"
    cloud.mkdir()
    return Site(
        place=create(),
        **folders(root),
        cluster={
            "head_node": SIZE,
            "scaling_groups": [
                {
                    "name": "workers",
                    "market": "spot",
                    "min_workers": 1,
                    "max_workers": 2,
                    "worker_nodes": SIZE,
                }
            ],
            "autoscaler_config": {"cpu": 0.5, "memory_gb": 1},
        },
        config={
            "azure-native:location": "uksouth",
            "sunspot:access": {
                "ssh_public_key_file": f"{key}.pub",
                "public_ip": True,
                "ssh_cidrs": ["203.0.113.7/32"],
            },
            "sunspot:storage": {"protect": False},
        },
        stages=STAGES,
        records="azure",
        record_file="stack.json",
        tools=tools,
        variables={CLOUD: str(cloud), STATE: str(pulumi), KEY: str(key)},
        temp_dirs=tuple(
            folder
            for name in STACKS
            for folder in temp_dirs(cloud / f"sunspot-{name}" / "state" / "clusters")
        ),
        elsewhere=lambda: _known_to_pulumi(pulumi),
    )


def _write_tool(path: Path, module: str) -> None:
    folders = os.pathsep.join([str(HERE), str(HERE.parent)])
    command = shlex.join([sys.executable, "-P", "-m", module])
    path.write_text(f'#!/bin/sh\nPYTHONPATH={shlex.quote(folders)} exec {command} "$@"\n')
    path.chmod(0o755)


def _known_to_pulumi(folder: Path) -> list[str]:
    """The resources in its state, and its locks."""
    return [
        *(f"lock {lock.name}" for lock in folder.glob("*.lock")),
        *(
            one["id"]
            for file in folder.glob("*.json")
            for one in json.loads(file.read_text())["resources"]
        ),
    ]
