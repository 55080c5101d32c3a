"""docs/changes.md: what an edit of each key of a stack file does to the head and to the workers."""

import copy
from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from functools import cache
from typing import Any

import pytest
import yaml
from azure_model.resource_ids import SUBSCRIPTION
from builds import PUBLIC_KEY, ROOT, build
from edits import Step, steps

from sunspot.errors import UsageError
from sunspot.idle import Idle
from sunspot.node.azure import live
from sunspot.spec import RayClusterConfig, ScalingGroup
from sunspot.stack import Image, Stack
from sunspot.targets.azure.settings import Access, Network, Storage

HEADINGS = "| Key | Edit | Head | Workers | Jobs |"
GROUPS = "sunspot:cluster > scaling_groups"
# Parts of these are keys of their own in the table.
MODELS = {
    "sunspot:idle": Idle,
    "sunspot:image": Image,
    "sunspot:access": Access,
    "sunspot:network": Network,
    "sunspot:storage": Storage,
}

SMALL, LARGE = {"vm_size": "Standard_D4s_v5"}, {"vm_size": "Standard_D8s_v5"}
FIXED = {
    "name": "fixed",
    "market": "spot",
    "min_workers": 2,
    "max_workers": 2,
    "worker_nodes": SMALL,
}
ELASTIC = {**FIXED, "name": "elastic", "min_workers": 0, "max_workers": 4}
STACK: dict[str, Any] = {
    "azure-native:location": "uksouth",
    "sunspot:cluster": {
        "head_node": SMALL,
        "scaling_groups": [FIXED, ELASTIC],
        "autoscaler_config": {"cpu": 0.5, "memory_gb": 1},
    },
    "sunspot:access": {
        "ssh_public_key": PUBLIC_KEY,
        "public_ip": True,
        "ssh_cidrs": ["1.1.1.1/32"],
    },
}
SUBNETS = (
    f"/subscriptions/{SUBSCRIPTION}/resourceGroups/net/providers/Microsoft.Network/virtualNetworks/"
    "v/subnets/"
)
GALLERY_IMAGE = (
    f"/subscriptions/{SUBSCRIPTION}/resourceGroups/images/providers/Microsoft.Compute/galleries/g/"
    "images/i/versions/1.0.0"
)


@dataclass(frozen=True)
class Edit:
    """An edit: new values by key (of a block, those that change), and what becomes of scale sets.

    `sets` has those that do not stay the same; `state_goes` says that the state disk is replaced.
    """

    changes: dict[str, Any]
    sets: dict[str, Step] = field(default_factory=dict)
    head_replaced: bool = False
    state_goes: bool = False


def groups(*made: dict[str, Any]) -> dict[str, Any]:
    return {"sunspot:cluster": {"scaling_groups": list(made)}}


ALL: dict[str, Step] = {"fixed": "replace", "elastic": "replace"}
# Their VMs stay, and `sunspot up` rolls them.
ROLLED: dict[str, Step] = {"fixed": "update", "elastic": "update"}
UBUNTU = "Canonical:ubuntu-24_04-lts:server"
EDITS = {
    "another number for a fixed group": [
        Edit(groups({**FIXED, "min_workers": 3, "max_workers": 3}, ELASTIC), {"fixed": "update"})
    ],
    "other limits": [
        Edit(groups(FIXED, {**ELASTIC, "max_workers": 8})),
        Edit(groups(FIXED, {**ELASTIC, "min_workers": 1})),
    ],
    "a fixed group made elastic": [
        Edit(groups({**FIXED, "max_workers": 3}, ELASTIC), {"fixed": "replace"})
    ],
    "the last elastic group removed": [
        Edit(groups(FIXED), {"elastic": "delete"}, head_replaced=True)
    ],
    "market": [
        Edit(groups(FIXED, {**ELASTIC, "market": "on-demand"}), {"elastic": "replace"}),
    ],
    "another `vm_size`": [
        Edit(groups(FIXED, {**ELASTIC, "worker_nodes": LARGE}), {"elastic": "replace"}),
        Edit(groups({**FIXED, "worker_nodes": LARGE}, ELASTIC), {"fixed": "replace"}),
    ],
    "a new group": [Edit(groups(FIXED, ELASTIC, {**ELASTIC, "name": "more"}), {"more": "create"})],
    "a removed group": [Edit(groups(ELASTIC), {"fixed": "delete"})],
    "another name": [
        Edit(groups({**FIXED, "name": "new"}, ELASTIC), {"fixed": "delete", "new": "create"})
    ],
    "another size": [Edit({"sunspot:cluster": {"head_node": LARGE}}, head_replaced=True)],
    "other numbers": [Edit({"sunspot:cluster": {"autoscaler_config": {"cpu": 1, "memory_gb": 1}}})],
    "another image": [
        Edit(
            {"sunspot:image": {"reference": "rayproject/ray:2.60.0-py312"}},
            ROLLED,
            head_replaced=True,
        )
    ],
    "another version of the same": [
        Edit(
            {"sunspot:image": {"vm_image": f"{UBUNTU}:24.04.202501010"}}, ROLLED, head_replaced=True
        )
    ],
    "another VM image": [
        Edit(
            {"sunspot:image": {"vm_image": "Canonical:ubuntu-24_04-lts:minimal:latest"}},
            ALL,
            head_replaced=True,
        ),
        Edit(
            {"sunspot:image": {"vm_image": GALLERY_IMAGE}},
            ALL,
            head_replaced=True,
        ),
    ],
    "mirror": [Edit({"sunspot:image": {"mirror": False}}, ROLLED, head_replaced=True)],
    "other networks": [
        Edit({"sunspot:access": {"ssh_cidrs": ["1.1.1.2/32"]}}),
        Edit({"sunspot:access": {"serve_cidrs": ["1.1.1.2/32"]}}),
    ],
    "public_ip": [Edit({"sunspot:access": {"public_ip": False}})],
    "bastion": [Edit({"sunspot:access": {"bastion": True}})],
    "another key": [
        Edit({"sunspot:access": {"ssh_public_key": f"{PUBLIC_KEY}2"}}, ROLLED, head_replaced=True)
    ],
    "custom_roles": [Edit({"sunspot:access": {"custom_roles": False}}, ROLLED)],
    "address_space": [
        Edit({"sunspot:network": {"address_space": "10.70.0.0/16"}}, ALL, head_replaced=True)
    ],
    "subnets of yours": [
        Edit(
            {"sunspot:network": {"subnet_ids": {"head": f"{SUBNETS}h", "workers": f"{SUBNETS}w"}}},
            ALL,
            head_replaced=True,
        )
    ],
    "retention_days": [
        Edit({"sunspot:storage": {"retention_days": 7}}),
        Edit({"sunspot:storage": {"protect": False}}),
    ],
    "tags": [
        Edit({"sunspot:owner": "ada"}, {"fixed": "update", "elastic": "update"}),
        Edit({"sunspot:tags": {"a": "b"}}, {"fixed": "update", "elastic": "update"}),
    ],
    "another region": [
        Edit({"azure-native:location": "ukwest"}, ALL, head_replaced=True, state_goes=True)
    ],
    "sunspot:orphan_after": [
        Edit({"sunspot:orphan_after": 60}, ROLLED),
        Edit({"sunspot:orphan_after": 0}, ROLLED),
    ],
    "sunspot:idle": [
        Edit({"sunspot:idle": {"after_minutes": 30, "action": "warn"}}),
        Edit({"sunspot:idle": {"action": "stop-head"}}),
    ],
    "check_region": [Edit({"sunspot:check_region": False})],
    "sunspot:target": [Edit({"sunspot:target": "local"})],
}


@dataclass(frozen=True)
class Row:
    """A row of the table; `keys` of the nearest row above that has some."""

    keys: tuple[str, ...]
    edit: str
    head: str
    workers: str

    @property
    def name(self) -> str:
        """How `EDITS` calls it: by the start of its edit, or by what is in its keys."""
        known = [one for one in EDITS if self.edit.startswith(one)]
        return (known or [one for one in EDITS if one in "".join(self.keys)] or [""])[0]


@cache
def rows() -> tuple[Row, ...]:
    return tuple(_rows())


def _rows() -> Iterator[Row]:
    text = (ROOT / "docs" / "changes.md").read_text()
    keys: tuple[str, ...] = ()
    for line in text.partition(f"{HEADINGS}\n|---|---|---|---|---|\n")[2].splitlines():
        if not line.startswith("|"):
            return
        named, edit, head, workers, _ = (cell.strip() for cell in line.strip("|").split(" | "))
        keys = tuple(one.strip(" `") for one in named.split(",")) if named else keys
        yield Row(keys, edit, head, workers)


def edited(changes: dict[str, Any]) -> Stack:
    described = copy.deepcopy(STACK)
    for key, value in changes.items():
        before = described.get(key)
        described[key] = {**before, **value} if isinstance(before, dict) else value
    return Stack.parse(described, name="x")


@cache
def unchanged() -> Any:
    return build(edited({}))


CASES = [(name, number) for name, edits in EDITS.items() for number in range(len(edits))]


@pytest.mark.parametrize(("name", "number"), CASES)
def test_an_edit_does_what_its_row_says(name: str, number: int) -> None:
    edit = EDITS[name][number]
    after = build(edited(edit.changes))
    done = steps(unchanged(), after)
    sets = {
        set_name.removeprefix("sunspot-x-").removesuffix("-vmss"): step
        for set_name, step in done.items()
        if set_name.endswith("-vmss") and step != "same"
    }
    assert sets == edit.sets
    assert (done["sunspot-x-head-vm"] == "replace") == edit.head_replaced
    assert (done["sunspot-x-head-state"] == "replace") == edit.state_goes

    (row,) = [one for one in rows() if one.name == name]
    assert row.head.startswith("**replaced**" if edit.head_replaced else "stays")
    assert ("state disk with it" in row.head) == edit.state_goes
    told = {"replace": "replaced", "delete": "deleted", "create": "made"}
    boots = [
        live.parse(live.decoded(one.one("VirtualMachine").inputs["userData"])).boots
        for one in (unchanged(), after)
    ]
    for set_name, step in sets.items():
        if step == "update" and boots[0][set_name] != boots[1][set_name]:
            assert "rolled" in row.workers
    for step, word in told.items():
        if step in sets.values():
            assert word in row.workers
    if not sets:
        assert row.workers.startswith("stay")


def test_every_row_is_tested() -> None:
    # Another version of Ray is refused, see below.
    assert [one for one in rows() if not one.name] == [
        one for one in rows() if one.keys == ("sunspot:cluster > ray_version",)
    ]
    assert {one.name for one in rows()} - {""} == EDITS.keys()


def test_every_key_of_a_stack_file_has_a_row() -> None:
    declared = yaml.safe_load((ROOT / "Pulumi.yaml").read_text())["config"]
    keys = {"azure-native:location", *declared} - {"sunspot:cluster", *MODELS}
    keys |= {f"sunspot:cluster > {one.name}" for one in fields(RayClusterConfig)} - {GROUPS}
    keys |= {f"{GROUPS} > {one.name}" for one in fields(ScalingGroup)}
    keys |= {f"{key} > {name}" for key, model in MODELS.items() for name in model.model_fields}
    assert {key for row in rows() for key in row.keys} == keys


def test_another_version_of_ray_is_refused() -> None:
    with pytest.raises(UsageError, match="ray_version"):
        edited({"sunspot:cluster": {"ray_version": "2.59.0"}})
