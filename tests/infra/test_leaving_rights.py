"""A worker's right to delete itself: enough for its set, and for nothing else."""

import base64
from functools import cache

import pytest
from azure_model.arm import GROUP, HEAD, serving
from azure_model.compute import Vm
from azure_model.resource_ids import SUBSCRIPTION, group_id
from azure_model.rights import rights_of
from builds import build, group, make_stack

from cloud_init import readable
from infra import roles
from sunspot.node.azure.arm import Arm, ArmError
from sunspot.node.azure.imds import Imds
from sunspot.node.azure.scale_sets import COMPUTE_VERSION

SETS = ("sunspot-test-fixed", "sunspot-test-elastic")
COMPUTE = f"{group_id(GROUP)}/providers/Microsoft.Compute"
THEIRS = f"/subscriptions/{SUBSCRIPTION}/resourceGroups/theirs/providers/Microsoft.Compute"


@cache
def made(*, custom_roles=True, orphan_after=30):
    groups = group("fixed"), group("elastic", max_workers=2)
    access = {"custom_roles": custom_roles}
    return build(make_stack(*groups, access=access, orphan_after=orphan_after))


def deleted(arm, scale_set):
    """Whether a machine of the set can be deleted through it, by whoever `arm.rights` is."""
    arm.add(scale_set)
    arm.sets[scale_set].capacity = 1
    name = f"{scale_set}_00000001"
    arm.vms[name] = Vm(name, scale_set, "Succeeded")
    client = Arm(Imds(arm.url), arm.url, patience_s=1.0)
    path = f"{COMPUTE}/virtualMachineScaleSets/{scale_set}/delete"
    try:
        client.send("POST", path, COMPUTE_VERSION, {"instanceIds": [name]})
    except ArmError:
        return False
    left = arm.vms.get(name)
    if left is not None and left.state != "Deleting":
        return False
    arm.wait_for_loss(name)
    return arm.sets[scale_set].capacity == 0


@pytest.mark.parametrize("scale_set", SETS)
def test_a_worker_leaves_its_set(scale_set):
    with serving() as arm:
        arm.rights = rights_of(made(), "workers")
        assert deleted(arm, scale_set)


@pytest.mark.parametrize("action", sorted({*roles.LEAVER.actions, *roles.LEAVING.actions}))
def test_each_of_its_actions_is_needed(action):
    with serving() as arm:
        arm.rights = rights_of(made(), "workers").without(action)
        assert not deleted(arm, SETS[0])


def test_it_may_create_read_and_change_nothing_there():
    rights = rights_of(made(), "workers")
    for action in {*roles.SCALER.actions, *roles.MACHINES.actions}:
        allowed = action in roles.LEAVER.actions or action in roles.LEAVING.actions
        scope = f"{COMPUTE}/virtualMachineScaleSets/{SETS[0]}"
        assert rights.allows(action, scope) == allowed, action
    assert not rights.allows("Microsoft.Compute/virtualMachineScaleSets/delete", COMPUTE)


def test_the_action_on_sets_reaches_the_clusters_own_worker_sets_only():
    rights = rights_of(made(), "workers")
    (action,) = roles.LEAVER.actions
    assert all(rights.allows(action, f"{COMPUTE}/virtualMachineScaleSets/{one}") for one in SETS)
    assert not rights.allows(action, f"{COMPUTE}/virtualMachineScaleSets/another")
    for one in roles.LEAVING.actions:
        assert not rights.allows(one, f"{THEIRS}/virtualMachines/{HEAD}")


@pytest.mark.parametrize("keys", [{"orphan_after": 0}, {"custom_roles": False}])
def test_where_workers_may_not_leave_none_tries(keys):
    run = made(**keys)
    with serving() as arm:
        arm.rights = rights_of(run, "workers")
        assert not deleted(arm, SETS[0])
    assert "SUNSPOT_ORPHAN_SECONDS=''" in booted(run)


def test_the_time_is_in_what_workers_boot_from():
    assert "SUNSPOT_ORPHAN_SECONDS='1800'" in booted(made())
    text = booted(made(orphan_after=45))
    assert "SUNSPOT_ORPHAN_SECONDS='2700'" in text
    assert "- sunspot-orphan.service\n" in text


def booted(run):
    profile = run.of("VirtualMachineScaleSet")[0].inputs["virtualMachineProfile"]
    return readable(base64.b64decode(profile["osProfile"]["customData"])).decode()
