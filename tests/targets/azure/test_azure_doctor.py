"""`sunspot doctor` on Azure: Microsoft's own clients against a stand-in for a subscription."""

import json
import os
import shlex
import time

import pytest
import yaml
from azure_model import subscription as model
from azure_model.certificate import Certificate
from azure_model.resource_ids import SUBSCRIPTION, TENANT
from azure_model.subscription import CONTRIBUTOR, OWNER, READER, SCOPE, restriction, sku
from azure_stacks import run, write
from ssh_server import make_key

from sunspot.targets.azure import target as azure
from sunspot.targets.azure.doctor import clients, image, login, machine
from sunspot.targets.azure.doctor.types import ARM_TYPES
from sunspot.targets.azure.inventory import PRINCIPAL, Endpoints
from sunspot.targets.azure.records import Record, Records
from sunspot.targets.azure.target import AzureTarget
from sunspot.targets.azure.tree import NATIVE

PULUMI = """case "$*" in
  version) echo v3.999.0 ;;
  "--non-interactive whoami --json") echo '{"user": "me", "url": "file://~"}' ;;
esac"""
VARIABLES = (*PRINCIPAL, *login._OTHERS, login.SUBSCRIPTION_VARIABLE, *machine.PASSPHRASES)


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    return Certificate.create(tmp_path_factory.mktemp("tls"), ["localhost"])


@pytest.fixture(scope="module")
def key(tmp_path_factory):
    return make_key(tmp_path_factory.mktemp("key") / "key")


@pytest.fixture
def subscription(project, certificate, key, monkeypatch, tmp_path):
    """A subscription with everything that the stack "x" needs, and a login of the Azure CLI."""
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(certificate.file))
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv(machine.PASSPHRASES[0], "secret")
    tools = tmp_path / "tools"
    tools.mkdir()
    monkeypatch.setenv("PATH", f"{tools}{os.pathsep}{os.environ['PATH']}")
    write_tool(tools / "pulumi", PULUMI)
    write(project, "x", key=f"{key}.pub")
    with model.serving(certificate.context()) as found:
        found.clock_s = time.time()
        monkeypatch.setattr(image, "DOCKER_HUB", found.url.removeprefix("https://"))
        place = AzureTarget(
            Records(tmp_path / "state" / "azure"),
            engine=lambda *_, **__: pytest.fail("no engine is needed"),
            endpoints=Endpoints(login=found.url, management=found.url),
        )
        monkeypatch.setattr(azure, "create", lambda: place)
        write_az(tools)
        yield found


def write_tool(path, script):
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


def write_az(tools, *, says=None, subscriptions=1):
    """An Azure CLI with a login; with `says`, that is why it gives no token."""
    given = {
        "accessToken": model.token(),
        "expiresOn": "2099-01-01 00:00:00.000000",
        "expires_on": 4070908800,
        "subscription": SUBSCRIPTION,
        "tenant": TENANT,
        "tokenType": "Bearer",
    }
    listed = [{"id": f"id-{n}", "name": f"Sub {n}"} for n in range(subscriptions)]
    answer = f"echo {shlex.quote(json.dumps(given))}"
    refusal = f"echo {shlex.quote(f'ERROR: {says}')} >&2; exit 1"
    write_tool(
        tools / "az",
        f"""case "$*" in
  "account list"*) echo {shlex.quote(json.dumps(listed))} ;;
  "account get-access-token"*) {refusal if says else answer} ;;
  *) exit 9 ;;
esac""",
    )


@pytest.fixture
def tools(tmp_path):
    return tmp_path / "tools"


def diagnosed(code=0):
    """The findings of the stack "x", by their checks; the command must end with this code."""
    result = run("doctor", "x", "--json")
    assert result.exit_code == code, result.output
    return {one["check"]: one for one in json.loads(result.stdout)["findings"]}


def failures(found):
    return {name: one["detail"] for name, one in found.items() if one["level"] == "failure"}


def only_failure(name):
    """The only failure, which is of this check."""
    found = diagnosed(1)
    assert failures(found).keys() == {name}, failures(found)
    return found[name]


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
    for name in ("offer", "resource providers", "rights", "quota", "global names", "policy"):
        assert found[name]["level"] == "warning"
        assert "not checked" in found[name]["detail"]


def test_no_cli_and_no_principal_is_no_login(subscription, tools, monkeypatch):
    (tools / "az").unlink()
    monkeypatch.setenv("PATH", f"{tools}{os.pathsep}/usr/bin{os.pathsep}/bin")
    assert "ARM_CLIENT_ID" in only_failure("login")["remedy"]


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


@pytest.fixture
def principal(subscription, monkeypatch):
    """A login by the environment, with a subscription."""
    for name, value in zip(PRINCIPAL, ("client", "right", TENANT), strict=True):
        monkeypatch.setenv(name, value)
    monkeypatch.setenv(login.SUBSCRIPTION_VARIABLE, SUBSCRIPTION)
    return subscription


def test_a_service_principal_is_a_login(principal):
    assert "client" in diagnosed()["login"]["detail"]


def test_a_service_principal_without_a_subscription_is_a_failure(principal, monkeypatch):
    monkeypatch.delenv(login.SUBSCRIPTION_VARIABLE)
    assert login.SUBSCRIPTION_VARIABLE in only_failure("subscription")["remedy"]


def test_an_expired_secret_of_a_principal_is_a_failure(principal):
    principal.secret = "another"
    assert "AADSTS7000222" in only_failure("login")["detail"]


def test_a_stack_file_may_name_the_subscription(principal, project, monkeypatch):
    monkeypatch.delenv(login.SUBSCRIPTION_VARIABLE)
    config(project, {login.SUBSCRIPTION_KEY: SUBSCRIPTION})
    assert diagnosed()["subscription"]["level"] == "ok"


def test_a_subscription_that_is_not_there_is_a_failure(principal, monkeypatch):
    monkeypatch.setenv(login.SUBSCRIPTION_VARIABLE, "22222222-2222-3333-4444-555555555555")
    assert "SubscriptionNotFound" in only_failure("subscription")["detail"]


def test_a_login_that_cannot_be_tried_is_a_warning(subscription, monkeypatch):
    monkeypatch.setenv("ARM_USE_OIDC", "true")
    found = diagnosed()
    assert found["login"]["level"] == "warning"
    assert "ARM_USE_OIDC" in found["login"]["detail"]


def test_without_the_clients_the_way_to_install_them_is_named(subscription, monkeypatch):
    def missing(*_):
        raise clients.SunspotError(clients.MISSING)

    monkeypatch.setattr(clients, "credential", missing)
    found = diagnosed()
    assert found["offer"]["level"] == "warning"
    assert "requirements-azure.txt" in found["offer"]["remedy"]


# The subscription


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


def test_a_disabled_subscription_is_a_failure(subscription):
    subscription.state = "Disabled"
    assert "Disabled" in only_failure("subscription")["detail"]


def test_a_provider_that_is_not_registered_is_a_failure_with_its_command(subscription):
    subscription.registered["microsoft.compute"] = "NotRegistered"
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
    assert diagnosed()["rights to give rights"]["level"] == "warning"


def test_what_may_not_be_read_is_a_warning(subscription):
    subscription.broken["/roleAssignments"] = 403
    finding = diagnosed()["rights"]
    assert finding["level"] == "warning"
    assert "AuthorizationFailed" in finding["detail"]


# Quota and sizes


@pytest.mark.parametrize(
    ("quota", "needed", "name"),
    [
        ("standardDSv5Family", 4, "standardDSv5Family"),
        ("cores", 4, "Total Regional vCPUs"),
        ("lowPriorityCores", 24, "Total Regional Spot vCPUs"),
    ],
)
@pytest.mark.parametrize("short", [0, 1])
def test_a_quota_one_core_short_is_a_failure(subscription, quota, needed, name, short):
    subscription.usages[quota] = (100, 100 + needed - short)
    if not short:
        diagnosed()
        return
    finding = only_failure(f"quota {name}")
    assert "1 too few" in finding["detail"]
    assert f"--resource-name '{quota}'" in finding["remedy"]
    assert f"value={100 + needed}" in finding["remedy"]


def test_the_stacks_own_machines_are_not_counted_twice(subscription, tmp_path):
    record = Record(folder="", stack={}, outputs={}, group_id=f"{SCOPE}/resourceGroups/own")
    Records(tmp_path / "state" / "azure").write("x", record)
    subscription.machines = [("Standard_D4s_v5", "Regular"), ("Standard_D4s_v5", "Spot")]
    subscription.usages |= {"standardDSv5Family": (4, 4), "cores": (4, 4)}
    subscription.usages["lowPriorityCores"] = (4, 24)
    diagnosed()


def test_a_quota_that_azure_does_not_list_is_a_warning(subscription):
    del subscription.usages["standardDSv5Family"]
    assert diagnosed()["quota standardDSv5Family"]["level"] == "warning"


def test_a_region_without_the_size_is_a_failure(subscription):
    subscription.skus.pop()
    finding = only_failure("size Standard_NC4as_T4_v3")
    assert model.REGION in finding["detail"]
    assert "az vm list-skus --size Standard_NC4as_T4_v3" in finding["remedy"]


def test_a_region_that_is_known_not_to_have_the_size_is_a_failure_without_a_login(
    subscription, project, tools
):
    write_az(tools, says="Please run 'az login' to setup account.")
    config(project, {"azure-native:location": "norwaywest"})
    found = diagnosed(1)
    assert failures(found).keys() == {"login", "size Standard_NC4as_T4_v3"}


@pytest.mark.parametrize(
    ("change", "level", "part"),
    [
        ({"restrictions": [restriction("Location")]}, "failure", "NotAvailableForSubscription"),
        ({"restrictions": [restriction("Zone", "1", "3")]}, "warning", "1, 3"),
        (sku("x", LowPriorityCapable="False"), "failure", "spot"),
        (sku("x", HyperVGenerations="V1"), "failure", "generation 2"),
        (sku("x", TrustedLaunchDisabled="True"), "failure", "trusted launch"),
        (sku("x", EphemeralOSDiskSupported="False"), "failure", "ephemeral"),
    ],
)
def test_what_the_subscription_may_not_have_of_a_size(subscription, change, level, part):
    gpu = subscription.skus[1]
    gpu |= {name: value for name, value in change.items() if name != "name"}
    finding = diagnosed(1 if level == "failure" else 0)["size Standard_NC4as_T4_v3"]
    assert finding["level"] == level
    assert part in finding["detail"]


# Names


VERBATIM = {"pulumi:autonaming": {"mode": "verbatim"}}


def test_random_names_cannot_be_taken(subscription):
    subscription.names["sunspot"] = "taken"
    assert diagnosed()["global names"]["level"] == "ok"


def test_a_name_that_is_taken_is_a_failure(subscription, project):
    config(project, VERBATIM)
    assert diagnosed()["name sunspot (Vault)"]["level"] == "ok"
    subscription.names["sunspot"] = "The name is in use by somebody."
    found = diagnosed(1)
    assert failures(found).keys() == {"name sunspot (Vault)", "name sunspot (StorageAccount)"}
    assert "in use by somebody" in found["name sunspot (Vault)"]["detail"]


@pytest.mark.parametrize("purge_protected", [False, True])
def test_a_vault_that_is_soft_deleted_keeps_its_name(subscription, project, purge_protected):
    config(project, {"pulumi:autonaming": {"pattern": "${name}-${stack}"}})
    subscription.deleted["sunspot-x"] = {"purgeProtectionEnabled": purge_protected}
    found = diagnosed(1)["name sunspot-x (Vault)"]
    assert found["level"] == "failure"
    assert "2026-11-30" in found["detail"]
    assert ("az keyvault purge --name sunspot-x" in found["remedy"]) is not purge_protected


def test_the_stacks_own_names_are_not_taken(subscription, project, tmp_path):
    config(project, VERBATIM)
    record = Record(folder="", stack={}, outputs={}, group_id=f"{SCOPE}/resourceGroups/own")
    Records(tmp_path / "state" / "azure").write("x", record)
    subscription.names["sunspot"] = "taken"
    subscription.resources.append("sunspot")
    assert diagnosed()["name sunspot (Vault)"]["level"] == "ok"


# Policy


def test_a_policy_that_would_deny_is_a_failure_with_its_message(subscription):
    subscription.denials.append("Resource 'sunspot-x' was disallowed by policy 'Only westeurope'")
    assert "Only westeurope" in only_failure("policy")["detail"]


def test_policy_is_asked_of_the_stacks_region_tags_and_sizes(subscription):
    diagnosed()
    (body,) = subscription.bodies
    group, inside = body["properties"]["template"]["resources"]
    within = inside["properties"]["template"]["resources"]
    assert {one["location"] for one in (group, *within)} == {model.REGION}
    assert all(one["tags"]["stack"] == "x" for one in (group, *within))
    sizes = {one["sku"]["name"] for one in within if one["type"].endswith("ScaleSets")}
    assert sizes == {"Standard_D4s_v5", "Standard_NC4as_T4_v3"}


# The image, and this machine


@pytest.mark.parametrize(
    ("reference", "level"),
    [
        ("rayproject/ray:2.60.0-py311", "ok"),
        ("rayproject/ray:2.60.0-py399", "failure"),
        ("private/ray:2.60.0-py311", "warning"),
    ],
)
def test_a_tag_that_does_not_exist_is_a_failure(subscription, project, reference, level):
    config(project, {"sunspot:image": {"reference": reference}})
    finding = diagnosed(1 if level == "failure" else 0)[f"image {reference}"]
    assert finding["level"] == level
    assert level != "failure" or "2.60.0-py399" in finding["detail"]


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("ubuntu", (image.DOCKER_HUB, "library/ubuntu", "latest")),
        ("rayproject/ray:2.60.0", (image.DOCKER_HUB, "rayproject/ray", "2.60.0")),
        ("docker.io/prom/node@sha256:ab", (image.DOCKER_HUB, "prom/node", "sha256:ab")),
        ("my.azurecr.io/ray:1", ("my.azurecr.io", "ray", "1")),
        ("localhost:5000/a/b", ("localhost:5000", "a/b", "latest")),
    ],
)
def test_a_reference_is_read_as_docker_reads_it(text, parts):
    found = image.parse(text)
    assert (found.host, found.name, found.version) == parts


@pytest.mark.parametrize(
    ("ahead", "level"), [(0, "ok"), (100, "warning"), (-400, "failure"), (400, "failure")]
)
def test_a_clock_that_is_wrong(subscription, ahead, level):
    subscription.clock_s -= ahead
    assert diagnosed(1 if level == "failure" else 0)["clock"]["level"] == level


def test_no_way_out_is_a_failure_and_names_the_proxy(subscription, monkeypatch):
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:1")
    finding = diagnosed(1)["outbound ports"]
    assert finding["level"] == "failure"
    assert "HTTPS_PROXY" in finding["remedy"]


def test_a_missing_ssh_key_is_a_failure(subscription, project):
    write(project, "x", key="missing.pub")
    finding = only_failure("SSH key")
    assert "missing.pub" in finding["detail"]
    assert "ssh-keygen" in finding["remedy"]


def test_no_pulumi_is_a_warning(subscription, tools, monkeypatch, tmp_path):
    (tools / "pulumi").unlink()
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PATH", f"{tools}{os.pathsep}/usr/bin{os.pathsep}/bin")
    assert diagnosed()["pulumi"]["level"] == "warning"


def test_no_backend_is_a_failure(subscription, tools):
    said = "error: PULUMI_ACCESS_TOKEN must be set for login during non-interactive CLI sessions"
    write_tool(
        tools / "pulumi", f'[ "$1" = version ] && echo v3.999.0 || {{ echo "{said}" >&2; exit 1; }}'
    )
    assert only_failure("pulumi login")["remedy"] == "pulumi login --local"


def test_no_passphrase_is_a_failure(subscription, monkeypatch):
    monkeypatch.delenv(machine.PASSPHRASES[0])
    assert machine.PASSPHRASES[0] in only_failure("secrets")["remedy"]


def test_a_stack_that_is_wrong_is_exit_code_2(subscription, project):
    config(project, {"azure-native:location": "UK South"})
    result = run("doctor", "x")
    assert result.exit_code == 2
    assert "azure-native:location" in result.stderr


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


def test_every_type_of_a_plan_has_arms_name():
    assert all(not name.startswith(NATIVE) for name in ARM_TYPES)


def config(project, changes):
    """Changes the stack file's settings."""
    file = project / "Pulumi.x.yaml"
    document = yaml.safe_load(file.read_text())
    document["config"] |= changes
    file.write_text(yaml.safe_dump(document))
