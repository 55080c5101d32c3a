"""What Azure says of a missing right, and what Sunspot makes of it."""

import pytest
from azure_model.http_service import Reply, serving
from azure_model.pulumi_state import GROUP
from azure_model.resource_ids import SUBSCRIPTION

from sunspot.errors import SunspotError
from sunspot.targets.azure import missing_role
from sunspot.targets.azure.credentials import Endpoints
from sunspot.targets.azure.errors import explain, problem
from sunspot.targets.azure.remaining import remaining

SCOPE = f"/subscriptions/{SUBSCRIPTION}"
VM = f"{GROUP}/providers/Microsoft.Compute/virtualMachines/one"
SUBNET = f"{SCOPE}/resourceGroups/hub/providers/Microsoft.Network/virtualNetworks/v/subnets/s"


def failed(action, scope):
    """ARM's words: Microsoft's "Troubleshoot Azure RBAC"; Azure/azure-cli#20727 prints them."""
    return (
        f"The client 'me@example.com' with object id 'o-1' does not have authorization to perform "
        f"action '{action}' over scope '{scope}' or the scope is invalid. If access was recently "
        "granted, please refresh your credentials."
    )


def linked(action, scope):
    """ARM's words for what a request uses: Azure/aad-pod-identity#613."""
    return (
        f"The client 'c' with object id 'o-1' has permission to perform action "
        f"'Microsoft.Network/networkInterfaces/write' on scope '{VM}'; however, it does not have "
        f"permission to perform action(s) '{action}' on the linked scope(s) '{scope}' "
        "(respectively) or the linked scope(s) are invalid."
    )


@pytest.mark.parametrize(
    ("text", "role", "on"),
    [
        (failed("Microsoft.Compute/virtualMachines/write", VM), "Contributor", SCOPE),
        (
            failed("Microsoft.Authorization/roleAssignments/write", VM),
            "User Access Administrator",
            SCOPE,
        ),
        (failed("Microsoft.Resources/subscriptions/resourceGroups/read", GROUP), "Reader", GROUP),
        (
            linked("Microsoft.Network/virtualNetworks/subnets/join/action", SUBNET),
            "Network Contributor",
            SUBNET,
        ),
    ],
)
def test_the_role_its_scope_and_the_command_are_named(text, role, on):
    missing = missing_role.find(text)
    assert missing is not None
    quoted = f"'{role}'" if " " in role else role
    command = f"az role assignment create --assignee o-1 --role {quoted} --scope {on}"
    assert missing.command == command
    for told in (explain(f"Code=AuthorizationFailed Message={text}"), str(problem("x", text))):
        assert told is not None
        assert command in told
        assert missing.action in told


def test_what_names_no_right_stays_as_it_is():
    assert missing_role.find("AuthorizationFailed") is None
    assert missing_role.explained("no") == "no"


def test_a_stack_need_not_define_roles():
    text = failed("Microsoft.Authorization/roleDefinitions/write", SCOPE)
    assert "sunspot:access > custom_roles: false" in (explain(text) or "")


def test_who_may_not_list_a_group_is_told_the_role(principal):
    message = failed("Microsoft.Resources/subscriptions/resourceGroups/resources/read", GROUP)

    def answer(request):
        return Reply(403, {"error": {"code": "AuthorizationFailed", "message": message}})

    with serving(answer) as address, pytest.raises(SunspotError) as caught:
        remaining(GROUP, Endpoints(login=principal.url, management=address))
    assert f"--role Reader --scope {GROUP}" in str(caught.value)


def test_the_azure_clis_words_are_explained_too(no_login, tmp_path, monkeypatch):
    message = failed("Microsoft.Resources/subscriptions/resourceGroups/read", GROUP)
    (tmp_path / "az").write_text(
        f'#!/bin/sh\necho "ERROR: (AuthorizationFailed) {message}" >&2; exit 1'
    )
    (tmp_path / "az").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SunspotError, match=f"--role Reader --scope {GROUP}"):
        remaining(GROUP)
