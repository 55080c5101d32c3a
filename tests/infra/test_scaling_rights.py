"""The head's rights are enough for Azure to grow and shrink a Flexible set, and each is needed."""

import asyncio
from functools import cache

import pulumi
import pytest
from azure_model.arm import GROUP, HEAD, serving
from azure_model.resource_ids import SUBSCRIPTION, group_id
from azure_model.rights import rights_of
from builds import build, group, make_stack

from infra import roles
from sunspot.node.azure.arm import Arm, ArmError
from sunspot.node.azure.imds import Imds
from sunspot.node.azure.scale_sets import Cluster, ScaleSetMachines
from sunspot.node.azure.serial_log import SerialLog
from sunspot.node.machines import LaunchDeniedError

SET = "sunspot-test-workers"
COMPUTE = f"{group_id(GROUP)}/providers/Microsoft.Compute"
THEIRS = f"{group_id('theirs')}/providers/Microsoft.Network/virtualNetworks/v/subnets/w"
# What only a machine with such a disk or rules needs, or a user who looks.
NOT_ASKED_FOR = {
    "Microsoft.Compute/disks/read",
    "Microsoft.Compute/virtualMachines/retrieveBootDiagnosticsData/action",
    "Microsoft.Network/networkInterfaces/read",
    "Microsoft.Network/networkSecurityGroups/join/action",
}


@cache
def made(own_network=True, **access):
    network = {} if own_network else {"subnet_ids": {"head": THEIRS, "workers": THEIRS}}
    return build(make_stack(group(max_workers=2), access=access, network=network))


def used_by(run):
    """What the machines of the set use: the actions that Azure requires on it."""
    profile = run.one("VirtualMachineScaleSet").inputs
    (card,) = profile["virtualMachineProfile"]["networkProfile"]["networkInterfaceConfigurations"]
    (identity,) = profile["identity"]["userAssignedIdentities"]
    yield (
        "Microsoft.Network/virtualNetworks/subnets/join/action",
        card["ipConfigurations"][0]["subnet"]["id"],
    )
    yield "Microsoft.ManagedIdentity/userAssignedIdentities/assign/action", identity
    if rules := card.get("networkSecurityGroup"):
        yield "Microsoft.Network/networkSecurityGroups/join/action", rules["id"]


def machines_of(arm, run, rights):
    assert run.one("ResourceGroup").id == group_id(GROUP)
    assert run.one("VirtualMachineScaleSet").inputs["vmScaleSetName"] == SET
    arm.add(SET)
    arm.uses, arm.rights = tuple(used_by(run)), rights
    cluster = Cluster(
        subscription_id=SUBSCRIPTION,
        resource_group=GROUP,
        head=HEAD,
        head_type="head",
        scale_sets={"workers": SET},
    )
    return ScaleSetMachines(cluster, Arm(Imds(arm.url), arm.url, patience_s=20.0))


def up_and_down(arm, machines):
    machines.create("workers", 1)
    (name,) = [machine.id for machine in machines.list() if machine.running and not machine.is_head]
    machines.terminate(name)
    arm.wait_for_loss(name)


@pytest.mark.parametrize("custom_roles", [True, False])
@pytest.mark.parametrize("own_network", [True, False])
def test_the_head_grows_and_shrinks_a_flexible_set(own_network, custom_roles):
    run = made(own_network, custom_roles=custom_roles)
    with serving() as arm:
        up_and_down(arm, machines_of(arm, run, rights_of(run, "head")))


def actions():
    return {*roles.SCALER.actions, *roles.MACHINES.actions} - NOT_ASKED_FOR


@pytest.mark.parametrize("action", sorted(actions()))
def test_without_any_of_its_actions_it_does_not(action):
    run = made()
    with serving() as arm:
        machines = machines_of(arm, run, rights_of(run, "head").without(action))
        machines._delete_again_s = 0.0
        if not action.endswith(("/delete", "/delete/action")):
            with pytest.raises((LaunchDeniedError, ArmError), match=action):
                up_and_down(arm, machines)
            return
        machines.create("workers", 1)
        (name,) = [one.id for one in machines.list() if not one.is_head]
        if action.endswith("/action"):
            with pytest.raises(ArmError, match=action):
                machines.terminate(name)
        else:
            machines.terminate(name)
        assert name in {one.id for one in machines.list()}


def test_the_head_reads_the_console_of_a_machine_that_does_not_join():
    run = made()
    right = "Microsoft.Compute/virtualMachines/retrieveBootDiagnosticsData/action"
    with serving() as arm:
        machines = machines_of(arm, run, rights_of(run, "head"))
        machines.create("workers", 1)
        (name,) = [one.id for one in machines.list() if not one.is_head]
        arm.vms[name].console = "sunspot: phase image failed: no such tag"
        log = SerialLog(Arm(Imds(arm.url), arm.url, patience_s=1.0), COMPUTE)
        assert log.why(name) == "phase image of its boot failed: no such tag"
        arm.rights = rights_of(run, "head").without(right)
        assert log.why(name) == ""


def test_rules_of_its_own_network_cards_need_a_right_too():
    run = made(own_network=False)
    action = "Microsoft.Network/networkSecurityGroups/join/action"
    with serving() as arm:
        machines = machines_of(arm, run, rights_of(run, "head").without(action))
        machines._delete_again_s = 0.0
        with pytest.raises(LaunchDeniedError, match=action):
            machines.create("workers", 1)


@pytest.mark.parametrize("custom_roles", [True, False])
def test_the_workers_may_do_none_of_it(custom_roles):
    run = made(custom_roles=custom_roles)
    with serving() as arm, pytest.raises(ArmError, match="AuthorizationFailed"):
        machines_of(arm, run, rights_of(run, "workers")).list()


def test_built_in_roles_have_the_narrowest_scopes():
    run = made(custom_roles=False)
    assert run.of("RoleDefinition") == []
    built_in = {roles.VIRTUAL_MACHINE_CONTRIBUTOR, roles.MANAGED_IDENTITY_OPERATOR}
    found = [
        (r.inputs["roleDefinitionId"].rpartition("/")[2], r.inputs["scope"])
        for r in run.of("RoleAssignment")
    ]
    (workers,) = [i for i in run.of("UserAssignedIdentity") if i.name.endswith("-workers")]
    assert sorted((role, scope) for role, scope in found if role in built_in) == sorted(
        [
            (roles.VIRTUAL_MACHINE_CONTRIBUTOR, group_id(GROUP)),
            (roles.MANAGED_IDENTITY_OPERATOR, workers.id),
        ]
    )


# A role that Azure has not replicated yet


UNKNOWN_ROLE = (
    "Code=RoleDefinitionDoesNotExist Message=The specified role definition with ID 'x' does not "
    "exist."
)


def test_assignments_of_new_roles_come_late_and_are_repeated():
    run = made()
    tokens = {run.named(f"sunspot-test-token-{one}").urn for one in ("head-reads", "workers-read")}
    defined = {role.id for role in run.of("RoleDefinition")}
    assert defined
    for one in run.of("RoleAssignment"):
        is_custom = one.inputs["roleDefinitionId"] in defined
        assert one.on_error == (["sunspot-until-role-is-known"] if is_custom else [])
        assert bool(tokens & {*one.depends_on}) == is_custom
    assert [one.on_error for one in made(custom_roles=False).resources if one.on_error] == []


def again(*errors):
    failed = pulumi.ErrorHookArgs("urn", "", "name", "type", errors=list(errors))
    return asyncio.run(roles.is_known_later(failed))


def test_only_a_role_that_is_not_known_yet_is_waited_for(monkeypatch):
    monkeypatch.setattr(roles, "ASSIGN_AGAIN_S", 0.0)
    assert again(UNKNOWN_ROLE)
    assert again(UNKNOWN_ROLE, "AuthorizationFailed")
    assert not again("AuthorizationFailed", UNKNOWN_ROLE)
    assert not again()
    assert not again(*[UNKNOWN_ROLE] * (roles.ASSIGN_TRIES + 1))
