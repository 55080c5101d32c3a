"""Quota, sizes and global names, asked through Azure's own clients."""

import pytest
import yaml
from azure_model import subscription as model
from azure_model.subscription import SCOPE, restriction, sku
from doctor_runs import config, diagnosed, failures, only_failure, write_az

from sunspot.targets.azure.records import Record, Records

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


def test_a_slip_in_the_regions_name_is_told_without_a_login(subscription, project, tools):
    write_az(tools, says="Please run 'az login' to setup account.")
    config(project, {"azure-native:location": "uksuth"})
    assert "did you mean uksouth?" in diagnosed(1)["size Standard_NC4as_T4_v3"]["detail"]


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


NAME = "name sunspot (Vault)"
VERBATIM = {"pulumi:autonaming": {"mode": "verbatim"}}


def test_random_names_cannot_be_taken(subscription):
    subscription.names["sunspot"] = "taken"
    assert diagnosed()["global names"]["level"] == "ok"


def test_a_name_that_is_taken_is_a_failure(subscription, project):
    config(project, VERBATIM)
    assert diagnosed()["name sunspot (Vault)"]["level"] == "ok"
    subscription.names["sunspot"] = "The name is in use by somebody."
    found = diagnosed(1)
    named = ("Vault", "StorageAccount", "Registry")
    assert failures(found).keys() == {f"name sunspot ({kind})" for kind in named}
    assert "in use by somebody" in found["name sunspot (Vault)"]["detail"]


@pytest.mark.parametrize(
    ("given", "checked"),
    [
        ({"pattern": "${name}${hex(8)}"}, "global names"),
        ({"pattern": "${project}-${name}-${stack}"}, "name mine-sunspot-x (Vault)"),
        ({"mode": "verbatim"}, NAME),
    ],
)
def test_the_project_may_say_how_names_are_made(subscription, project, given, checked):
    text = yaml.safe_dump({"name": "mine", "config": {"pulumi:autonaming": {"value": given}}})
    (project / "Pulumi.yaml").write_text(text)
    assert diagnosed()[checked]["level"] == "ok"


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
