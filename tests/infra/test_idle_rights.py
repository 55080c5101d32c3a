"""What a head gets that may stop itself when nothing uses the cluster, and what no other gets."""

import pytest
from azure_model.answers import principal_of
from azure_model.arm import GROUP, HEAD
from azure_model.resource_ids import group_id
from azure_model.rights import rights_of
from builds import build, group, make_stack

from infra import roles
from sunspot.node.azure import live
from sunspot.targets.azure import tree

DEALLOCATE = "Microsoft.Compute/virtualMachines/deallocate/action"
RESIZE = "Microsoft.Compute/virtualMachineScaleSets/write"
MACHINES = f"{group_id(GROUP)}/providers/Microsoft.Compute"
VM, OTHER = f"{MACHINES}/virtualMachines/{HEAD}", f"{MACHINES}/virtualMachines/other"
SET = f"{MACHINES}/virtualMachineScaleSets/sunspot-test-workers"


def run_of(action, *groups, **access):
    # Without an action, as Pulumi fills it in.
    idle = {} if action is None else {"after_minutes": 30, "action": action}
    return build(make_stack(*groups, access=access, idle=idle))


@pytest.mark.parametrize("custom_roles", [True, False])
def test_only_a_head_that_stops_itself_may_and_only_its_own_vm(custom_roles):
    run = run_of("stop-head", custom_roles=custom_roles)
    rights = rights_of(run, "head")
    assert rights.allows(DEALLOCATE, VM)
    assert not rights.allows(DEALLOCATE, OTHER)
    assert not rights_of(run, "workers").allows(DEALLOCATE, VM)


@pytest.mark.parametrize("action", [None, "warn", "workers"])
def test_no_other_head_may_stop_itself(action):
    run = run_of(action, group(min_workers=0, max_workers=2))
    assert not rights_of(run, "head").allows(DEALLOCATE, VM)


@pytest.mark.parametrize(
    ("action", "may"), [(None, False), ("warn", False), ("workers", True), ("stop-head", True)]
)
def test_a_fixed_group_is_emptied_only_by_a_head_that_has_to(action, may):
    rights = rights_of(run_of(action, group(min_workers=2, max_workers=2)), "head")
    assert rights.allows(RESIZE, SET) == may


def test_the_role_allows_one_action():
    run = run_of("stop-head")
    (role,) = [one for one in run.of("RoleDefinition") if "stopper" in one.name]
    (permission,) = role.inputs["permissions"]
    assert permission["actions"] == [DEALLOCATE] == list(roles.STOPPER.actions)
    (assigned,) = [one for one in run.of("RoleAssignment") if one.name.endswith(tree.STOPS)]
    (identity,) = [one for one in run.of("UserAssignedIdentity") if one.name.endswith("-head")]
    assert assigned.inputs["principalId"] == principal_of(identity.id)


def test_the_policy_goes_into_the_user_data_and_not_into_what_boots():
    fixed = group("fixed", min_workers=2, max_workers=2)
    with_it, without = run_of("workers", fixed), run_of(None, fixed)
    vm, before = with_it.one("VirtualMachine").inputs, without.one("VirtualMachine").inputs
    given = live.parse(live.decoded(vm["userData"])).idle
    assert given == {
        "after_minutes": 30.0,
        "action": "workers",
        "stack": "test",
        "fixed": ["sunspot-test-fixed"],
    }
    assert vm["osProfile"] == before["osProfile"]
    assert live.parse(live.decoded(before["userData"])).idle is None
