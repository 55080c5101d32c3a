"""Which edits of a stack file change what the head and the workers boot from on Azure.

A machine is replaced when what it boots from changes (infra/head.py, infra/workers.py). The
settings that a running cluster follows (cloud_init/live.py) change without that. docs/changes.md
has a row for each edit.
"""

import copy
from pathlib import Path
from typing import Any

import node_values
import pytest

from cloud_init import render
from cloud_init.live import live_settings
from cloud_init.nodes import node_values as values_of
from sunspot.stack import Stack
from sunspot.targets.azure.plan import AzurePlan, plan

KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIEUt5hCfcxnxJzPgwFqLKOzNgkzEHDIWvRlbn2VGEFe/ a"
WORKER = {"vm_size": "Standard_D4s_v5"}
FIXED = {"name": "fixed", "min_workers": 2, "max_workers": 2, "worker_nodes": WORKER}
ELASTIC = {
    "name": "elastic",
    "market": "spot",
    "min_workers": 0,
    "max_workers": 4,
    "worker_nodes": WORKER,
}
LARGER = {"vm_size": "Standard_D8s_v5"}
STACK: dict[str, Any] = {
    "azure-native:location": "uksouth",
    "sunspot:cluster": {
        "head_node": {"vm_size": "Standard_D4s_v5"},
        "scaling_groups": [
            FIXED,
            ELASTIC,
        ],
        "autoscaler_config": {"cpu": 0.5, "memory_gb": 1},
        "ray_version": "2.60.0",
    },
    "sunspot:access": {"ssh_public_key": KEY, "public_ip": True, "ssh_cidrs": ["203.0.113.7/32"]},
}


def planned(described: dict[str, Any], folder: Path) -> AzurePlan:
    return plan(Stack.parse(described, name="x").for_target("azure"), folder)


def told(plan: AzurePlan) -> dict[str, bytes]:
    """What the head and each scale set boot from, by name, and the settings of the cluster."""
    nodes = {"head": None} | {pool.node_type: pool for pool in plan.pools}
    return {LIVE: live_settings(plan, node_values.FACTS).encode()} | {
        name: render(values_of(plan, pool, node_values.FACTS), compress=False)
        for name, pool in nodes.items()
    }


def edit(*path: Any, value: Any) -> dict[str, Any]:
    """The stack with another value at this path of keys."""
    described: Any = copy.deepcopy(STACK)
    inner = described
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    return described


GROUPS = ("sunspot:cluster", "scaling_groups")
ANOTHER = {"name": "more", "min_workers": 1, "max_workers": 1, "worker_nodes": WORKER}
ANOTHER_ELASTIC = {**ELASTIC, "name": "more"}


LIVE = "settings"


@pytest.mark.parametrize(
    ("described", "changed"),
    [
        (edit(*GROUPS, 0, value={**FIXED, "min_workers": 3, "max_workers": 3}), set()),
        (edit(*GROUPS, 0, "max_workers", value=3), {LIVE, "fixed"}),
        (edit(*GROUPS, 1, "max_workers", value=8), {LIVE}),
        (edit(*GROUPS, 1, "min_workers", value=1), {LIVE}),
        (edit(*GROUPS, 1, "market", value="on-demand"), {LIVE, "elastic"}),
        (edit(*GROUPS, 1, "market", value="spot-with-fallback"), {LIVE, "elastic-on-demand"}),
        (
            edit(*GROUPS, value=[{**ELASTIC, "min_workers": 4}, {**FIXED, "max_workers": 3}]),
            {LIVE, "elastic", "fixed"},
        ),
        (edit(*GROUPS, 1, "worker_nodes", value=LARGER), {LIVE, "elastic"}),
        (edit(*GROUPS, 0, "worker_nodes", value=LARGER), {LIVE, "fixed"}),
        (edit(*GROUPS, value=[FIXED, ELASTIC, ANOTHER]), {LIVE, "more"}),
        (edit(*GROUPS, value=[FIXED, ELASTIC, ANOTHER_ELASTIC]), {LIVE, "more"}),
        (edit(*GROUPS, value=[ELASTIC]), {LIVE, "fixed"}),
        (edit(*GROUPS, value=[FIXED]), {LIVE, "head", "elastic"}),
        (edit("sunspot:cluster", "head_node", value=LARGER), {LIVE, "head"}),
        (edit("sunspot:cluster", "autoscaler_config", "cpu", value=1), set()),
        (
            edit(
                "sunspot:image", value={"reference": "example.azurecr.io/ray@" + node_values.DIGEST}
            ),
            {LIVE, "head", "fixed", "elastic"},
        ),
        (edit("sunspot:access", "ssh_cidrs", value=["203.0.113.8/32"]), set()),
        (edit("sunspot:storage", value={"retention_days": 7}), set()),
        (edit("sunspot:orphan_after", value=45), {LIVE, "fixed", "elastic"}),
        (edit("sunspot:tags", value={"a": "b"}), set()),
    ],
)
def test_an_edit_changes_only_these(
    described: dict[str, Any], changed: set[str], tmp_path: Path
) -> None:
    before, after = (told(planned(one, tmp_path)) for one in (STACK, described))
    names = before.keys() | after.keys()
    assert {name for name in names if before.get(name) != after.get(name)} == changed
