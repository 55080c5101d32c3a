"""Logins and subscriptions, as `sunspot doctor` and `sunspot up` see them."""

import os
import sys

import pytest
from azure_model import subscription as model
from azure_model.certificate import RSA, Certificate
from azure_model.http_service import Reply, serving
from azure_model.resource_ids import SUBSCRIPTION
from azure_model.subscription import SCOPE
from azure_stacks import run
from doctor_runs import config, diagnosed, failures, only_failure, write_az

from sunspot.targets.azure.credentials import SUBSCRIPTION_KEY, SUBSCRIPTION_VARIABLE
from sunspot.targets.azure.doctor import clients, login


def test_a_subscription_that_has_everything_is_ok(subscription):
    found = diagnosed()
    assert {one["level"] for one in found.values()} == {"ok"}, found
    assert {"login", "subscription", "offer", "resource providers", "rights", "policy"} <= {*found}
    assert {"size Standard_D4s_v5", "size Standard_NC4as_T4_v3", "SSH key", "clock"} <= {*found}
    assert {"image rayproject/ray:2.60.0-py311", "image rayproject/ray:2.60.0-py311-gpu"} <= {
        *found
    }


# Login


def test_no_login_is_a_failure_and_says_what_was_not_checked(subscription, tools):
    write_az(tools, says="Please run 'az login' to setup account.")
    found = diagnosed(1)
    assert failures(found).keys() == {"login"}
    assert "az login" in found["login"]["remedy"]
    for name in (
        "subscription",
        "offer",
        "resource providers",
        "rights",
        "quota",
        "global names",
        "policy",
    ):
        assert found[name]["level"] == "warning"
        assert "not checked" in found[name]["detail"]


def test_no_cli_and_no_principal_is_no_login(subscription, tools, monkeypatch):
    (tools / "az").unlink()
    monkeypatch.setenv("PATH", f"{tools}{os.pathsep}/usr/bin{os.pathsep}/bin")
    finding = only_failure("login")
    assert "ARM_CLIENT_ID" in finding["detail"]
    assert "install" in finding["remedy"]


def test_an_expired_login_is_a_failure(subscription, tools):
    write_az(tools, says="AADSTS700082: The refresh token has expired due to inactivity.")
    finding = only_failure("login")
    assert "AADSTS700082" in finding["detail"]
    assert finding["remedy"] == "az login"


def test_two_subscriptions_and_none_chosen_names_both(subscription, tools):
    says = "No subscription found. Run 'az account set' to select a subscription."
    write_az(tools, says=says, subscriptions=2)
    finding = only_failure("subscription")
    assert "id-0" in finding["detail"]
    assert "id-1" in finding["detail"]
    assert finding["remedy"].startswith("az account set")


def test_a_service_principal_is_a_login(principal):
    assert "client" in diagnosed()["login"]["detail"]


def test_a_certificate_is_a_login(principal, tmp_path, monkeypatch):
    monkeypatch.delenv("ARM_CLIENT_SECRET")
    made = Certificate.create(tmp_path, ["client"], RSA)
    both = tmp_path / "both.pem"
    both.write_text(made.key.read_text() + made.file.read_text())
    monkeypatch.setenv("ARM_CLIENT_CERTIFICATE_PATH", str(both))
    found = diagnosed()
    assert "certificate" in found["login"]["detail"]
    assert found["rights"]["level"] == "ok"
    both.write_text("not a certificate")
    finding = only_failure("login")
    assert str(both) in finding["detail"]
    assert "--append --create-cert" in finding["remedy"]


def test_open_id_connect_is_a_login(principal, tmp_path, monkeypatch):
    monkeypatch.delenv("ARM_CLIENT_SECRET")
    monkeypatch.setenv("ARM_USE_OIDC", "true")
    assert "ARM_OIDC_TOKEN_FILE_PATH" in only_failure("login")["detail"]
    file = tmp_path / "token"
    monkeypatch.setenv("ARM_OIDC_TOKEN_FILE_PATH", str(file))
    assert str(file) in only_failure("login")["detail"]
    file.write_text("of.a.file")
    found = diagnosed()
    assert "OpenID Connect" in found["login"]["detail"]
    assert found["rights"]["level"] == "ok"
    principal.trusts = frozenset()
    finding = only_failure("login")
    assert "AADSTS70021" in finding["detail"]
    assert "federated-credential" in finding["remedy"]


def test_a_managed_identity_is_a_login(subscription, monkeypatch):
    body = {"access_token": model.token(), "expires_on": "4102444800", "token_type": "Bearer"}
    monkeypatch.setenv("ARM_USE_MSI", "true")
    monkeypatch.setenv(SUBSCRIPTION_VARIABLE, SUBSCRIPTION)
    monkeypatch.setenv("IDENTITY_HEADER", "it")
    with serving(lambda _: Reply(200, {**body, "resource": "x"})) as url:
        monkeypatch.setenv("IDENTITY_ENDPOINT", url)
        found = diagnosed()
    assert "managed identity" in found["login"]["detail"]
    assert found["rights"]["level"] == "ok"


def test_a_machine_without_identities_is_not_said_to_be_refused(subscription, monkeypatch):
    monkeypatch.setenv("ARM_USE_MSI", "true")
    monkeypatch.setenv(SUBSCRIPTION_VARIABLE, SUBSCRIPTION)
    monkeypatch.setitem(clients._PATIENCE, "retry_total", 0)
    monkeypatch.setenv("AZURE_POD_IDENTITY_AUTHORITY_HOST", "http://127.0.0.1:1")
    finding = only_failure("login")
    assert finding["detail"].startswith("it is not available here: ManagedIdentityCredential ")
    assert "az vm identity assign" in finding["remedy"]


@pytest.mark.parametrize("use_msi", ["false", "true"])
def test_half_a_login_of_the_environment_is_a_failure(principal, project, monkeypatch, use_msi):
    monkeypatch.setenv("ARM_USE_MSI", use_msi)
    monkeypatch.delenv("ARM_TENANT_ID")
    finding = only_failure("login")
    assert "ARM_CLIENT_SECRET is set, but not ARM_TENANT_ID" in finding["detail"]
    config(project, {"azure-native:tenantId": "of the file"})
    assert diagnosed()["login"]["level"] == "ok"  # that of the Azure CLI


def test_a_service_principal_without_a_subscription_is_a_failure(principal, monkeypatch):
    monkeypatch.delenv(SUBSCRIPTION_VARIABLE)
    assert SUBSCRIPTION_VARIABLE in only_failure("subscription")["remedy"]


def test_an_expired_secret_of_a_principal_is_a_failure(principal):
    principal.secret = "another"
    finding = only_failure("login")
    assert "AADSTS7000222" in finding["detail"]
    assert finding["detail"].startswith("Azure refuses it: ")
    assert "credential reset --id $ARM_CLIENT_ID --append prints" in finding["remedy"]


def test_a_stack_file_may_name_the_subscription(principal, project, monkeypatch):
    monkeypatch.delenv(SUBSCRIPTION_VARIABLE)
    config(project, {SUBSCRIPTION_KEY: SUBSCRIPTION})
    assert diagnosed()["subscription"]["level"] == "ok"


def test_a_subscription_that_is_not_there_is_a_failure(principal, monkeypatch):
    monkeypatch.setenv(SUBSCRIPTION_VARIABLE, "22222222-2222-3333-4444-555555555555")
    assert "SubscriptionNotFound" in only_failure("subscription")["detail"]


def test_a_login_that_cannot_be_tried_is_a_warning(subscription, monkeypatch):
    monkeypatch.setenv(login.OTHER, "true")
    found = diagnosed()
    assert found["login"]["level"] == "warning"
    assert login.OTHER in found["login"]["detail"]


@pytest.mark.parametrize("name", login.OTHER_KEYS)
def test_a_login_of_the_stack_file_cannot_be_tried_either(subscription, tools, project, name):
    write_az(tools, says="Please run 'az login' to setup account.")
    config(project, {name: {"secure": "v1:x"}})
    found = diagnosed()
    assert name in found["login"]["detail"]
    config(project, {name: "false"})
    assert only_failure("login")


def test_an_environment_of_pulumi_may_bring_a_login(subscription, tools, project):
    assert diagnosed()["login"]["level"] == "ok"
    write_az(tools, says="Please run 'az login' to setup account.")
    file = project / "Pulumi.x.yaml"
    file.write_text(f"environment: [azure]\n{file.read_text()}")
    assert "environment" in diagnosed()["login"]["detail"]


def test_an_encrypted_subscription_is_not_read(subscription, project):
    config(project, {SUBSCRIPTION_KEY: {"secure": "v1:x"}})
    found = diagnosed()
    assert found["login"]["level"] == "warning"
    assert SUBSCRIPTION_KEY in found["login"]["detail"]


def test_an_azure_that_does_not_answer_is_a_warning(subscription):
    subscription.broken[SCOPE] = 501
    found = diagnosed()
    assert found["subscription"]["level"] == "warning"
    assert "not checked" in found["rights"]["detail"]


def test_a_client_that_is_not_installed_is_a_warning(subscription, monkeypatch):
    monkeypatch.setitem(sys.modules, "azure.mgmt.compute", None)
    assert "azure.mgmt.compute" in diagnosed()["quota"]["detail"]


def test_without_the_clients_the_way_to_install_them_is_named(subscription, monkeypatch):
    monkeypatch.setitem(sys.modules, "azure.identity", None)
    found = diagnosed()
    assert found["offer"]["level"] == "warning"
    assert "pip install '.[azure]'" in found["offer"]["remedy"]


# Before `up`


def test_up_refuses_a_stack_without_a_login_before_anything_is_created(
    subscription, tools, tmp_path
):
    write_az(tools, says="Please run 'az login' to setup account.")
    result = run("up", "x")
    assert result.exit_code == 1
    assert "az login" in result.stderr
    assert "still exists" not in result.stderr
    assert not (tmp_path / "state" / "azure" / "x").exists()
