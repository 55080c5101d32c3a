"""What an `up` on Azure would replace: as the engine tells it, and as the command refuses it.

The same with the real engine: tests/real/engine/test_sunspot_up.py.
"""

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest
from azure_model.pulumi_state import machine, resource
from azure_stacks import run, up, write
from pulumi import automation as auto
from pulumi.automation import OpType
from pulumi.automation.events import DiffKind, PropertyDiff
from ssh_server import needs_sshd

from sunspot.errors import SunspotError, UsageError
from sunspot.targets.azure.automation import AzureStack
from sunspot.targets.azure.replacing import Plan, Replacement, Wanted
from sunspot.targets.local.target import LocalTarget

VM = "azure-native:compute:VirtualMachine"
SET = "azure-native:compute:VirtualMachineScaleSet"
HEAD = f"urn:pulumi:x::sunspot::sunspot:azure:Head${VM}::sunspot-x-head-vm"


def replacement(kind=VM, name="sunspot-x-head-vm", *causes, deleted=False):
    return Replacement(urn=f"urn::{name}", type=kind, properties=causes, deleted=deleted)


def step(operation, urn=HEAD, keys=None, kind=VM, **diff):
    detailed = {path: PropertyDiff(DiffKind(how), True) for path, how in diff.items()}
    metadata = SimpleNamespace(
        op=OpType(operation), type=kind, urn=urn, keys=keys, detailed_diff=detailed
    )
    return SimpleNamespace(
        resource_pre_event=SimpleNamespace(metadata=metadata),
        res_outputs_event=None,
        res_op_failed_event=None,
        diagnostic_event=None,
    )


def planned(*events):
    plan = Plan()
    for event in events:
        plan(event)
    return plan.replacements()


def test_a_replacement_is_told_once_with_its_causes():
    (found,) = planned(
        step("delete-replaced"),
        step("replace", keys=["location"], **{"osProfile.customData": "update-replace"}),
        step("replace", tags="update"),
        step("create-replacement"),
        step("update", urn="urn::other"),
        step("replace", urn="urn::component", kind="sunspot:azure:Head"),
    )
    assert str(found) == (
        "will replace VirtualMachine sunspot-x-head-vm (osProfile.customData, location)"
    )
    assert not found.deleted


def test_a_deletion_is_told_of_the_head_its_disk_and_of_workers_only():
    disk = "azure-native:compute:Disk"
    found = planned(
        step("delete"),
        step("delete", "urn::set", kind=SET),
        step("delete", "urn::d", kind=disk),
        step("delete", "urn::role", kind="azure-native:authorization:RoleAssignment"),
    )
    assert [(one.type, one.deleted) for one in found] == [(VM, True), (SET, True), (disk, True)]


# The engine's own words: pulumi's pkg/resource/deploy/step_generator.go, v3.258.0.
REPLACED = (
    f'unable to replace resource "{HEAD}"\nas it is currently marked for protection. To unprotect '
    "the resource, remove the `protect` flag from the resource in your Pulumi program and run "
    "`pulumi up`"
)
WITH_ITS_NIC = (
    f'unable to replace resource "{HEAD}" as part of replacing "urn:pulumi:x::sunspot::n::the-nic" '
    "as it is currently marked for protection."
)
DELETED = f'resource "{HEAD}" cannot be deleted\nbecause it is protected.'


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (REPLACED, "will replace VirtualMachine sunspot-x-head-vm"),
        (WITH_ITS_NIC, "will replace VirtualMachine sunspot-x-head-vm (with the-nic)"),
        (DELETED, "will delete VirtualMachine sunspot-x-head-vm"),
    ],
)
def test_a_preview_that_fails_on_the_protection_tells_of_the_head(
    tmp_path, monkeypatch, error, told
):
    (found,) = previewed(tmp_path, monkeypatch, error)
    assert str(found) == told


def test_a_preview_that_fails_otherwise_is_an_error(tmp_path, monkeypatch):
    with pytest.raises(SunspotError, match="passphrase"):
        previewed(tmp_path, monkeypatch, "passphrase must be set")


def previewed(tmp_path, monkeypatch, error):
    """What a stack would replace whose preview prints this error and fails."""

    class Previewing:
        def preview(self, on_event):
            told = SimpleNamespace(severity="error", message=error)
            on_event(
                SimpleNamespace(
                    resource_pre_event=None,
                    res_outputs_event=None,
                    res_op_failed_event=None,
                    diagnostic_event=told,
                )
            )
            raise auto.CommandError(auto.CommandResult(stdout="", stderr=error, code=255))

    command: Any = SimpleNamespace(holding_interrupts=nullcontext)
    monkeypatch.setattr(auto, "select_stack", lambda *_, **__: Previewing())
    monkeypatch.setattr(auto, "LocalWorkspaceOptions", lambda **_: None)
    return AzureStack("x", tmp_path, command).replacements()


def test_the_edited_keys_are_those_of_the_stack_file():
    group = {"name": "gpu", "max_workers": 4}
    before = {
        "name": "x",
        "cluster": {"scaling_groups": [group]},
        "settings": {"azure": {"location": "uksouth"}},
    }
    now = {
        "name": "x",
        "cluster": {"scaling_groups": [{**group, "max_workers": 8}, {"name": "cpu"}]},
        "settings": {"azure": {"location": "eastus"}},
    }
    assert Wanted(name="x", now=now, before=before).changes() == [
        "sunspot:cluster > scaling_groups > gpu > max_workers: 4 -> 8",
        "sunspot:cluster > scaling_groups > cpu: (none) -> (given)",
        "azure-native:location: uksouth -> eastus",
    ]
    assert Wanted(name="x", now=now, before=None).changes() == []


# The command


@needs_sshd
def test_the_first_up_needs_no_preview(place):
    up(place)
    assert "preview" not in place.fake.calls


@needs_sshd
def test_an_up_that_would_replace_the_head_is_refused_with_the_key(place, sshd):
    up(place)
    write(place.project, "x", key=f"{sshd.key}.pub", market="on-demand")
    place.fake.plan = (replacement(VM, "sunspot-x-head-vm", "osProfile.customData"),)
    place.fake.calls.clear()
    # The second time too: a refused edit is not remembered as if it had been made.
    for _ in range(2):
        result = run("up", "x")
        assert result.exit_code == 2, result.output
        assert "would replace VirtualMachine sunspot-x-head-vm" in result.stderr
        assert "osProfile.customData" in result.stderr
        assert "scaling_groups > fixed > market: spot -> on-demand" in result.stderr
        assert "sunspot up x --replace-head" in result.stderr
        assert "still exists and is billed" not in result.stderr
    assert "up" not in place.fake.calls


def test_what_plain_pulumi_made_is_guarded_too(place):
    place.fake.now = (machine(),)
    place.fake.plan = (replacement(VM, "sunspot-x-head-vm", "storageProfile.imageReference"),)
    with pytest.raises(UsageError, match="sunspot:image > vm_image"):
        up(place)
    assert "up" not in place.fake.calls


@needs_sshd
def test_with_the_flag_the_head_is_replaced_and_loses_its_protection_first(place):
    place.fake.now = (machine(),)
    place.fake.plan = (replacement(VM, "sunspot-x-head-vm", "osProfile.customData"),)
    result = run("up", "x", "--replace-head")
    assert result.exit_code == 0, result.output
    assert "will replace VirtualMachine sunspot-x-head-vm" in result.stderr
    calls = place.fake.calls
    assert calls.index("unprotect sunspot-x-head") < calls.index("preview") < calls.index("up")


@needs_sshd
def test_other_replacements_are_told_and_made(place):
    up(place)
    place.fake.plan = (replacement(SET, "sunspot-x-gpu-vmss", "sku.name"),)
    _, steps = up(place)
    told = "will replace VirtualMachineScaleSet sunspot-x-gpu-vmss (sku.name)"
    assert steps.index(told) < steps.index("created VirtualMachine sunspot-x-head-vm")
    assert not any(call.startswith("unprotect") for call in place.fake.calls)


@needs_sshd
def test_down_lifts_the_protection_of_the_head_only(place):
    up(place)
    run("down", "x")
    calls = place.fake.calls
    assert [call for call in calls if call.startswith("unprotect")] == ["unprotect sunspot-x-head"]
    assert calls.index("unprotect sunspot-x-head") < calls.index("destroy False")


def test_a_disk_of_its_own_is_guarded_as_the_head_is(place):
    disk = "azure-native:compute:Disk"
    place.fake.now = (machine(), resource(disk, "/x/state", protect=True))
    place.fake.plan = (replacement(disk, "sunspot-x-state", deleted=True),)
    with pytest.raises(UsageError, match="would delete Disk sunspot-x-state"):
        up(place)


def test_the_flag_is_refused_where_no_head_is_replaced(place, monkeypatch):
    monkeypatch.setattr("sunspot.targets.local.create", lambda: LocalTarget(place.project / "none"))
    result = run("up", "x", "--target", "local", "--replace-head")
    assert result.exit_code == 2
    assert "does not support replacing its head" in result.stderr
