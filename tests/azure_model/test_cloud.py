"""The stand-in for Azure must refuse what Azure refuses, or the engine's tests prove nothing."""

import pytest

from azure_model.cloud import Cloud, RefusedError
from azure_model.pulumi_wire import SECRET, SIGNATURE, UNKNOWN
from azure_model.request_inputs import problems

MACHINE = "azure-native:compute:VirtualMachine"
GROUP = {"resourceGroupName": "group"}
RULES = {**GROUP, "networkSecurityGroupName": "rules"}


@pytest.fixture
def cloud(tmp_path):
    """A cloud with one resource group."""
    made = Cloud(tmp_path)
    made.create("ResourceGroup", "group", GROUP)
    return made


def network(rules):
    subnet = {"name": "workers", "networkSecurityGroup": {"id": rules}}
    return {**GROUP, "virtualNetworkName": "net", "subnets": [subnet]}


@pytest.mark.parametrize(
    ("inputs", "problem"),
    [
        ({"osProfil": {}}, ("osProfil", "unknown to VirtualMachineArgs")),
        ({"osProfile": {"user": "x"}}, ("osProfile.user", "unknown to OSProfileArgs")),
        ({"priority": "Spott"}, ("priority", "'Spott' is not one of ['Low', 'Regular', 'Spot']")),
        ({"zones": "1"}, ("zones", "'1' is not a list")),
        ({"zones": [1]}, ("zones[0]", "1 is not str")),
        ({"tags": {"a": True}}, ("tags.a", "True is not str")),
        ({"osProfile": "x"}, ("osProfile", "'x' is not an object")),
    ],
)
def test_inputs_that_the_sdk_does_not_know(inputs, problem):
    assert problems(MACHINE, {**GROUP, **inputs}) == [problem]


def test_inputs_that_are_missing():
    assert problems(MACHINE, {}) == [("resourceGroupName", "missing")]


def test_inputs_that_are_right():
    secret = {SIGNATURE: SECRET, "value": "x"}
    profile = {"customData": secret, "adminUsername": UNKNOWN}
    inputs = {**GROUP, "osProfile": profile, "priority": "Spot", "networkProfile": UNKNOWN}
    assert problems(MACHINE, inputs) == []


def test_a_name_is_there_once(cloud):
    cloud.create("NetworkSecurityGroup", "rules", RULES)
    with pytest.raises(RefusedError, match="already existing"):
        cloud.create("NetworkSecurityGroup", "rules", RULES)


def test_a_new_role_is_unknown_at_first(cloud):
    scope = "/subscriptions/11111111-2222-3333-4444-555555555555/resourceGroups/group"
    role, _ = cloud.create("RoleDefinition", "role", {"scope": scope, "roleDefinitionId": "r"})
    built_in = "/subscriptions/s/providers/Microsoft.Authorization/roleDefinitions/b"
    cloud.replicate_late(1)

    def assign(name, definition):
        inputs = {"scope": scope, "roleAssignmentName": name, "roleDefinitionId": definition}
        return cloud.create("RoleAssignment", name, inputs)

    assert assign("built-in", built_in)
    with pytest.raises(RefusedError, match="RoleDefinitionDoesNotExist"):
        assign("custom", role)
    assert assign("custom", role)


def test_the_machines_of_a_scale_set_have_names_of_at_most_44_characters(cloud):
    cloud.create("VirtualMachineScaleSet", "set", {**GROUP, "vmScaleSetName": "s" * 35})
    with pytest.raises(RefusedError, match="too long"):
        cloud.create("VirtualMachineScaleSet", "set", {**GROUP, "vmScaleSetName": "s" * 36})


def test_a_reference_leads_somewhere(cloud):
    rules, _ = cloud.create("NetworkSecurityGroup", "rules", RULES)
    with pytest.raises(RefusedError, match="InvalidResourceReference"):
        cloud.create("VirtualNetwork", "net", network(f"{rules}-typo"))
    with pytest.raises(RefusedError, match="InvalidResourceReference"):
        cloud.create("NetworkSecurityGroup", "rules", {**RULES, "resourceGroupName": "other"})


def test_what_is_in_use_stays(cloud):
    rules, _ = cloud.create("NetworkSecurityGroup", "rules", RULES)
    net, _ = cloud.create("VirtualNetwork", "net", network(rules))
    with pytest.raises(RefusedError, match="InUse"):
        cloud.delete("NetworkSecurityGroup", rules)
    cloud.delete("VirtualNetwork", net)
    cloud.delete("NetworkSecurityGroup", rules)
    assert [r["kind"] for r in cloud.resources().values()] == ["ResourceGroup"]


def test_some_of_a_machine_cannot_change(cloud):
    inputs = {**GROUP, "vmName": "head", "osProfile": {"customData": "a"}}
    head, answer = cloud.create("VirtualMachine", "head", inputs)
    assert "customData" not in answer["osProfile"]
    with pytest.raises(RefusedError, match=r"osProfile\.customData"):
        cloud.update("VirtualMachine", head, {**inputs, "osProfile": {"customData": "b"}})
    cloud.update("VirtualMachine", head, {**inputs, "tags": {"owner": "ada"}})


def test_a_vault_takes_its_secrets_along(cloud):
    inputs = {**GROUP, "vaultName": "vault"}
    vault, _ = cloud.create("Vault", "vault", inputs)
    secret, _ = cloud.create("Secret", "token", {**inputs, "secretName": "token"})
    with pytest.raises(RefusedError, match="Forbidden"):
        cloud.delete("Secret", secret)
    cloud.delete("Vault", vault)
    assert len(cloud.resources()) == 1


def test_a_creation_can_be_refused(cloud):
    cloud.refuse({"rules": "QuotaExceeded: no more"})
    with pytest.raises(RefusedError, match="QuotaExceeded"):
        cloud.create("NetworkSecurityGroup", "rules", RULES)
    cloud.refuse({})
    cloud.create("NetworkSecurityGroup", "rules", RULES)
