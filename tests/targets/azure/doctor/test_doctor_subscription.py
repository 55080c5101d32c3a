"""What Azure's own clients are told of a subscription: offer, providers, rights, policy."""

import pytest
from azure_model import subscription as model
from azure_model.http_service import Reply
from azure_model.subscription import CONTRIBUTOR, OWNER, READER, SCOPE

# The subscription
from azure_stacks import write
from doctor_runs import config, diagnosed, failures, only_failure

from sunspot import stack as stacks
from sunspot.targets.azure.doctor.types import ARM_TYPES, namespaces
from sunspot.targets.azure.plan import plan
from sunspot.targets.azure.tree import NATIVE, tree


@pytest.mark.parametrize(
    ("quota_id", "level"),
    [
        ("PayAsYouGo_2014-09-01", "ok"),
        ("EnterpriseAgreement_2014-09-01", "ok"),
        ("FreeTrial_2014-09-01", "failure"),
        ("AzureForStudents_2018-01-01", "failure"),
        ("Unheard_2030-01-01", "warning"),
    ],
)
def test_only_some_offers_have_spot_machines(subscription, quota_id, level):
    subscription.quota_id = quota_id
    finding = diagnosed(1 if level == "failure" else 0)["offer"]
    assert finding["level"] == level
    assert quota_id in finding["detail"]


@pytest.mark.parametrize(
    ("state", "level"),
    [("PastDue", "warning"), ("Disabled", "failure"), ("Warned", "failure")],
)
def test_a_subscription_that_cannot_create_is_a_failure(subscription, state, level):
    subscription.state = state
    finding = diagnosed(1 if level == "failure" else 0)["subscription"]
    assert finding["level"] == level
    assert state in finding["detail"]


def test_a_provider_that_is_not_registered_is_a_failure_with_its_command(subscription):
    subscription.registered["Microsoft.Compute"] = "NotRegistered"
    remedy = only_failure("resource providers")["remedy"]
    assert remedy == "az provider register --wait --namespace Microsoft.Compute"


# Rights


def test_reader_rights_only_are_a_failure_with_the_roles_to_ask_for(subscription):
    subscription.assignments = [(READER, SCOPE, None)]
    found = diagnosed(1)
    assert failures(found).keys() == {"rights", "rights to give rights"}
    assert "Contributor" in found["rights"]["remedy"]
    assert "User Access Administrator" in found["rights to give rights"]["remedy"]


def test_a_contributor_may_not_give_rights(subscription):
    subscription.assignments = [(CONTRIBUTOR, SCOPE, None)]
    assert "roleAssignments/write" in only_failure("rights to give rights")["detail"]


def test_rights_in_another_group_are_none(subscription):
    subscription.assignments = [(OWNER, f"{SCOPE}/resourceGroups/other", None)]
    assert failures(diagnosed(1)).keys() == {"rights", "rights to give rights"}


@pytest.mark.parametrize("scope", ["/", "/providers/Microsoft.Management/managementGroups/all"])
def test_rights_from_above_count(subscription, scope):
    subscription.assignments = [(OWNER, scope, None)]
    assert diagnosed()["rights"]["level"] == "ok"


def test_rights_under_a_condition_are_a_warning(subscription):
    subscription.assignments = [(CONTRIBUTOR, SCOPE, None), (OWNER, SCOPE, "only some roles")]
    finding = diagnosed()["rights to give rights"]
    assert finding["level"] == "warning"
    # The Azure CLI refuses --all together with --scope.
    assert {"--scope", "--all"} & set(finding["remedy"].split()) == {"--scope"}


def test_what_may_not_be_read_is_a_warning(subscription):
    subscription.broken["/roleAssignments"] = 403
    finding = diagnosed()["rights"]
    assert finding["level"] == "warning"
    assert "AuthorizationFailed" in finding["detail"]


def test_a_role_that_is_missing_is_named_with_the_command_that_grants_it(subscription):
    action = "Microsoft.Authorization/roleAssignments/read"
    message = (
        f"The client 'me' with object id 'o' does not have authorization to perform action "
        f"'{action}' over scope '{SCOPE}' or the scope is invalid. If access was recently "
        "granted, please refresh your credentials."
    )
    error = {"code": "AuthorizationFailed", "message": message}
    subscription.broken["/roleAssignments"] = Reply(403, {"error": error})
    finding = diagnosed()["rights"]
    assert action in finding["detail"]
    assert f"--role Reader --scope {SCOPE}" in finding["remedy"]


def test_every_type_of_resource_has_arms_name(project, key):
    """Also those that few stacks have."""
    write(project, "x", key=f"{key}.pub")
    (project / "Dockerfile").touch()
    access = {"bastion": True, "public_ip": True, "ssh_cidrs": ["203.0.113.7/32"]}
    config(
        project,
        {
            "sunspot:image": {"context": "."},
            "sunspot:access": access | {"ssh_public_key_file": f"{key}.pub"},
        },
    )
    planned = plan(stacks.load("x"), project)
    made = {one.type for one in tree(planned).walk() if one.type.startswith(NATIVE)}
    assert {one.removeprefix(NATIVE) for one in made} <= ARM_TYPES.keys()
    assert "Microsoft.ContainerRegistry" in namespaces(planned)


# Policy


def test_a_policy_that_would_deny_is_a_failure_with_its_message(subscription):
    subscription.denials.append("Resource 'sunspot-x' was disallowed by policy 'Only westeurope'")
    assert "Only westeurope" in only_failure("policy")["detail"]


def test_a_region_that_azure_itself_denies_is_a_failure_with_another_region_as_remedy(subscription):
    subscription.denied_by = "RequestDisallowedByAzure"
    subscription.denials.append("Resource 'sunspot-x' was disallowed by Azure")
    finding = only_failure("policy")
    assert "disallowed by Azure" in finding["detail"]
    assert "azure-native:location" in finding["remedy"]


def test_policy_is_asked_of_the_stacks_region_tags_and_sizes(subscription):
    diagnosed()
    (body,) = subscription.bodies
    group, inside = body["properties"]["template"]["resources"]
    within = inside["properties"]["template"]["resources"]
    assert {one["location"] for one in (group, *within)} == {model.REGION}
    assert all(one["tags"]["stack"] == "x" for one in (group, *within))
    sizes = {one["sku"]["name"] for one in within if one["type"].endswith("ScaleSets")}
    assert sizes == {"Standard_D4s_v5", "Standard_NC4as_T4_v3"}
