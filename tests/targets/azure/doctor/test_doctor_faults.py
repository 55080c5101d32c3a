"""What `sunspot doctor` says where Azure, a registry or a file answers with something else."""

import time

import pytest
from azure_model.http_service import Reply
from azure_model.subscription import SCOPE
from azure_stacks import run
from doctor_runs import config, diagnosed, failures

from sunspot import stack as stacks
from sunspot.targets.azure.doctor import image
from sunspot.targets.azure.plan import plan

# The end of the path that each check asks -> the check.
ASKED = {
    "/Microsoft.Compute": "resource providers",
    "/roleAssignments": "rights",
    "/skus": "sizes",
    "/usages": "quota",
    "/validate": "policy",
}
UNREGISTERED = {
    "code": "MissingSubscriptionRegistration",
    "message": "The subscription is not registered to use namespace 'Microsoft.Compute'.",
}


@pytest.mark.parametrize("path", ASKED)
@pytest.mark.parametrize(
    "answer",
    [
        Reply(200, "<html>a proxy's page</html>"),
        Reply(200, "{"),
        Reply(200, {}),
        Reply(200, {"value": None}),
        Reply(200, {"value": [{"name": None, "properties": None}]}),
        Reply(403, {"error": "forbidden"}),
    ],
    ids=lambda reply: f"{reply.status}-{reply.body}",
)
def test_an_answer_that_is_none_of_azures_is_no_traceback(subscription, path, answer):
    subscription.broken[path] = answer
    result = run("doctor", "x", "--json")
    assert result.exit_code in (0, 1), result.output
    assert result.exception is None or isinstance(result.exception, SystemExit)


@pytest.mark.parametrize("path", ASKED)
def test_what_azure_is_too_busy_for_is_not_checked(subscription, path):
    busy = {"error": {"code": "TooManyRequests", "message": "later"}}
    subscription.broken[path] = Reply(429, busy, {"Retry-After": "3000"})
    finding = diagnosed()[ASKED[path]]
    assert finding["level"] == "warning"
    assert "TooManyRequests" in finding["detail"]


def test_a_busy_azure_does_not_mean_that_the_subscription_is_another(subscription):
    busy = {"error": {"code": "TooManyRequests", "message": "later"}}
    subscription.broken[SCOPE] = Reply(429, busy, {"Retry-After": "3000"})
    assert diagnosed()["subscription"]["level"] == "warning"


def test_nothing_is_registered(subscription):
    """Azure's own clients do so at this answer, and wait for it without end."""
    subscription.registered["Microsoft.Compute"] = "NotRegistered"
    subscription.broken["/usages"] = Reply(409, {"error": UNREGISTERED})
    found = diagnosed(1)
    assert "Microsoft.Compute" in found["resource providers"]["detail"]
    assert "MissingSubscriptionRegistration" in found["quota"]["detail"]
    assert not [one for one in subscription.asked if one.endswith("/register")]


def test_what_was_found_before_azure_stopped_to_answer_is_kept(subscription, project):
    config(project, {"pulumi:autonaming": {"mode": "verbatim"}})
    subscription.names["sunspot"] = "in use"
    subscription.broken["Microsoft.Storage/checkNameAvailability"] = 403
    found = diagnosed(1)
    assert failures(found).keys() == {"name sunspot (Vault)"}
    assert "AuthorizationFailed" in found["global names"]["detail"]


def test_a_policy_may_answer_with_403(subscription):
    denial = {"code": "RequestDisallowedByPolicy", "message": "disallowed by policy 'here only'"}
    error = {"code": "InvalidTemplateDeployment", "message": "See details.", "details": [denial]}
    subscription.broken["/validate"] = Reply(403, {"error": error})
    assert "here only" in failures(diagnosed(1))["policy"]


def test_a_validation_without_end_is_not_waited_for(subscription, monkeypatch):
    monkeypatch.setattr("sunspot.targets.azure.doctor.policy.PATIENCE_S", 0.1)
    goes_on = {"Location": f"{subscription.url}{SCOPE}/providers/x/validate", "Retry-After": "1"}
    subscription.broken["/validate"] = Reply(202, None, goes_on)
    begun = time.monotonic()
    assert "not checked" in diagnosed()["policy"]["detail"]
    assert time.monotonic() - begun < 60


@pytest.mark.parametrize(
    "answer",
    [
        Reply(503, None),
        Reply(429, {"error": "busy"}, {"Retry-After": "3000"}),
        Reply(200, "<html>a proxy's page</html>"),
    ],
    ids=lambda reply: str(reply.status),
)
def test_a_login_that_cannot_be_tried_is_not_refused(principal, answer):
    principal.broken["/oauth2/v2.0/token"] = answer
    found = diagnosed()
    assert found["subscription"]["level"] == "warning"
    assert "not checked" in found["rights"]["detail"]


@pytest.mark.usefixtures("subscription")
def test_ctrl_c_is_exit_code_130(monkeypatch):
    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("sunspot.targets.azure.doctor.quota.quotas", interrupt)
    assert run("doctor", "x").exit_code == 130


# A registry


@pytest.mark.parametrize("answer", [Reply(200, []), Reply(200, None), Reply(200, "<html>")])
def test_a_registry_whose_token_is_none_is_no_traceback(subscription, answer):
    subscription.broken["/token"] = answer
    assert diagnosed()["image"]["level"] == "warning"


@pytest.mark.parametrize("realm", ["http://localhost:1/token", "file:///etc/passwd"])
def test_a_registry_chooses_no_address_of_this_machine(subscription, realm):
    challenge = {"WWW-Authenticate": f'Bearer realm="{realm}"'}
    subscription.broken["/2.60.0-py311"] = Reply(401, None, challenge)
    assert realm in diagnosed()["image"]["detail"]


@pytest.mark.usefixtures("subscription")
def test_a_password_of_a_netrc_file_is_not_sent(project, monkeypatch, tmp_path):
    (tmp_path / "netrc").write_text("machine localhost login me password secret\n")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    found = list(image.exists(plan(stacks.load("x"), project)))
    assert {one.level for one in found} == {"ok"}


# The stack file


@pytest.mark.parametrize("given", [5, {"pattern": 5}, {"value": None}, {"value": ["x"]}, "x"])
def test_names_that_pulumi_would_refuse_are_no_traceback(subscription, project, given):
    config(project, {"pulumi:autonaming": given})
    diagnosed()


@pytest.mark.parametrize("given", [5, "--help", "../x", "my subscription"])
def test_a_subscription_that_is_no_id_is_exit_code_2(subscription, project, given):
    config(project, {"azure-native:subscriptionId": given})
    result = run("doctor", "x")
    assert result.exit_code == 2, result.output
    assert "azure-native:subscriptionId" in result.stderr
