"""Pulumi's events, errors and state, as they are told and kept."""

import json
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest
from azure_model.pulumi_state import GROUP, account, exported, group, machine
from pulumi import automation as auto
from pulumi.automation import CommandResult

from sunspot.errors import SunspotError
from sunspot.targets.azure.automation import AzureStack, Watcher, parse_state
from sunspot.targets.azure.errors import explain, problem


def event(**kinds) -> Any:
    names = (
        "resource_pre_event",
        "res_outputs_event",
        "res_op_failed_event",
        "diagnostic_event",
    )
    return SimpleNamespace(**{**dict.fromkeys(names), **kinds})


def step(op, kind="azure-native:compute:VirtualMachine", name="head-vm"):
    metadata = SimpleNamespace(op=op, type=kind, urn=f"urn:pulumi:x::sunspot::{kind}::{name}")
    return SimpleNamespace(metadata=metadata)


def test_progress_names_each_step_of_azures_resources():
    steps = []
    watch = Watcher(steps.append)
    watch(event(resource_pre_event=step("create")))
    watch(event(res_outputs_event=step("create")))
    watch(event(res_outputs_event=step("same")))
    watch(event(res_outputs_event=step("create", kind="sunspot:azure:Head")))
    watch(event(res_outputs_event=step("delete-replaced")))
    watch(event(res_op_failed_event=step("create")))
    for severity, text in (("warning", "<{%fg 3%}>Nobody can reach<{%reset%}>"), ("info", "x")):
        watch(event(diagnostic_event=SimpleNamespace(severity=severity, message=text)))
    assert steps == [
        "creating VirtualMachine head-vm",
        "created VirtualMachine head-vm",
        "deleted the old VirtualMachine head-vm",
        "failed: VirtualMachine head-vm",
        "warning: Nobody can reach",
    ]


def test_the_engines_errors_are_kept_once():
    watch = Watcher(lambda _: None)
    for text in ("boom", "boom", "update failed"):
        watch(event(diagnostic_event=SimpleNamespace(severity="error", message=text)))
    assert watch.errors == ["boom"]


QUOTA = (
    "Code=OperationNotAllowed Message=Operation could not be completed as it results in exceeding "
    "approved {family} quota. Additional details - Deployment Model: Resource Manager, Location: "
    "uksouth, Current Limit: 10, Current Usage: 8, Additional Required: 4, (Minimum) New Limit "
    "Required: 12. Setup Alerts when Quota reaches threshold."
)


def test_a_quota_error_names_family_limit_and_fix():
    told = explain(QUOTA.format(family="standardNCASv3_T4Family Cores")) or ""
    assert "'standardNCASv3_T4Family Cores'" in told
    assert "limit is 10, 8 are in use, 4 more are needed" in told
    assert "Ask for 12" in told
    assert "uksouth" in told
    assert "all spot machines" in (explain(QUOTA.format(family="LowPriorityCores")) or "")


# ARM's own words: Azure/azure-cli#20727 and its like; gardener/machine-controller-manager#544.
NO_DEFINITION = (
    "Status=403 Code=\"AuthorizationFailed\" Message=\"The client 'c' with object id 'o' does not "
    "have authorization to perform action 'Microsoft.Authorization/roleDefinitions/write' over "
    "scope '/subscriptions/s' or the scope is invalid.\""
)
NIC = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Network/networkInterfaces/gpu_1-nic"
SUBNET_IN_USE = (
    f'Code="InUseSubnetCannotBeDeleted" Message="Subnet workers is in use by {NIC}'
    "/ipConfigurations/internal and cannot be deleted. In order to delete the subnet, delete all "
    'the resources within the subnet. See aka.ms/deletesubnet."'
)


# Microsoft's page "Resolve errors for resource provider registration".
UNREGISTERED = (
    'Code="MissingSubscriptionRegistration" Message="The subscription is not registered to use '
    "namespace 'Microsoft.KeyVault'. See https://aka.ms/rps-not-found\""
)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("Code=SkuNotAvailable", "another size or region"),
        ("Code=AllocationFailed", "try later"),
        ("RequestDisallowedByAzure: Resource 'x' was disallowed by Azure", "azure-native:location"),
        (UNREGISTERED, "az provider register --wait --namespace Microsoft.KeyVault"),
        ("Code=AzureSpotFeatureNotEnabledForSubscription", "market: on-demand"),
        ("Code=TasksOperationsNotAllowed", "mirror: false"),
        ("PUT .../registries/r/taskRuns/copies-0a1b2c3d4e5f: Failed", "az acr task logs"),
        ("AuthorizationFailed: action 'x/write' over '/r/taskRuns/copies-1'", "Contributor"),
        ("toomanyrequests: You have reached your pull rate limit", "try later"),
        ("action 'Microsoft.Authorization/roleAssignments/write'", "User Access Administrator"),
        (NO_DEFINITION, "User Access Administrator"),
        (NO_DEFINITION, "sunspot:access > custom_roles: false"),
        ("Code=RoleDefinitionDoesNotExist Message=The specified", "run the same command again"),
        (SUBNET_IN_USE, f"az network nic delete --ids {NIC}"),
        ("Code=InUseSubnetCannotBeDeleted Subnet s is in use by x/loadBalancers/y", "some minutes"),
        ("AuthorizationFailed", "Contributor"),
        ("Please run 'az login'", "az login"),
        ("passphrase must be set with PULUMI_CONFIG_PASSPHRASE", "PULUMI_CONFIG_PASSPHRASE_FILE"),
        ("error: PULUMI_ACCESS_TOKEN must be set for login", "pulumi login --local"),
        ("the stack is currently locked by 1 lock(s)", "pulumi cancel"),
    ],
)
def test_known_errors_are_explained(text, told):
    assert told in (explain(text) or "")


def test_unknown_errors_are_passed_on_shortened():
    assert explain("what") is None
    message = str(problem("x", "first", "second " * 200, "third", "fourth"))
    assert "first" in message
    assert "and 1 more" in message
    assert len(message) < 1200


def test_a_state_has_only_azures_resources():
    state = parse_state(exported(group(), machine("7"), account(), head_address="1.2.3.4"))
    assert state.outputs == {"head_address": "1.2.3.4"}
    assert len(state.resources) == 3
    assert state.group_id == GROUP
    assert state.head is not None
    assert state.head.outputs["vmId"] == "7"
    assert [one.name for one in state.resources if one.protected] == ["sunspot-x-head", "sunspot1"]
    assert state.protected_head == (machine()["urn"],)
    assert parse_state({}).resources == ()


def test_pulumis_own_commands_are_asked(tmp_path):
    asked = []

    class Command:
        def run(self, arguments, folder, environment):
            asked.append((arguments, folder, environment["PULUMI_SKIP_UPDATE_CHECK"]))
            return SimpleNamespace(stdout=json.dumps(exported(group())))

    state = AzureStack("x", tmp_path, Command()).state()  # type: ignore[arg-type]
    assert state is not None
    assert state.group_id == GROUP
    # Without --show-secrets: what is secret stays encrypted.
    assert asked == [(["stack", "export", "--stack", "x"], str(tmp_path), "true")]


@pytest.mark.parametrize("error", [None, "error: no stack named 'x' found"])
def test_an_empty_stack_is_removed_also_one_that_is_not_there(tmp_path, error):
    asked = []

    class Command:
        def run(self, arguments, *_):
            asked.append(arguments)
            if error:
                raise auto.StackNotFoundError(CommandResult(stdout="", stderr=error, code=1))
            return SimpleNamespace(stdout="")

    AzureStack("x", tmp_path, Command()).remove()  # type: ignore[arg-type]
    assert asked == [["stack", "rm", "--yes", "--stack", "x"]]


class Destroying:
    """Pulumi's `destroy`, which fails with each of these errors in turn, and then does not."""

    def __init__(self, *errors):
        self.errors = list(errors)
        self.options = []

    def destroy(self, on_event, **options):
        self.options.append(options)
        if self.errors:
            text = self.errors.pop(0)
            on_event(event(diagnostic_event=SimpleNamespace(severity="error", message=text)))
            raise auto.CommandError(CommandResult(stdout="", stderr=text, code=1))


class Exporting:
    """Pulumi's command, whose export fails so often before it answers."""

    def __init__(self, *errors: str) -> None:
        self.errors = list(errors)

    def run(self, *_: Any, **__: Any) -> CommandResult:
        if self.errors:
            raise auto.CommandError(CommandResult("", self.errors.pop(0), 255))
        return CommandResult(json.dumps(exported(group(), machine())), "", 0)


def read_state(folder, *errors):
    """The state of a stack, and how long was waited for it."""
    waits: list[float] = []
    command: Any = Exporting(*errors)
    return AzureStack("x", folder, command, sleep=waits.append).state(), waits


WRITTEN = "error: failed to load checkpoint: EOF"


def test_a_state_that_another_command_writes_is_read_again(tmp_path):
    state, waits = read_state(tmp_path, WRITTEN, WRITTEN)
    assert state is not None
    assert len(waits) == 2


def test_a_state_that_stays_broken_is_told(tmp_path):
    with pytest.raises(SunspotError, match=r"(?s)STACK.json.attrs.*failed to load checkpoint"):
        read_state(tmp_path, *[WRITTEN] * 9)
    with pytest.raises(SunspotError, match="no access"):
        read_state(tmp_path, "error: no access", "error: not asked again")


class NoCommand:
    def holding_interrupts(self):
        return nullcontext()


@pytest.fixture
def destroy(tmp_path, monkeypatch):
    """Destroys a stack; `seen` tells of it."""
    seen = SimpleNamespace(fake=Destroying(), waits=[], steps=[])

    def run(*errors):
        seen.fake = Destroying(*errors)
        monkeypatch.setattr(auto, "select_stack", lambda *_, **__: seen.fake)
        monkeypatch.setattr(auto, "LocalWorkspaceOptions", lambda **_: None)
        command: Any = NoCommand()
        stack = AzureStack("x", tmp_path, command, sleep=seen.waits.append)
        stack.destroy(seen.steps.append, delete_storage=False)

    return SimpleNamespace(run=run, seen=seen)


def test_a_subnet_that_a_nic_still_holds_is_deleted_later(destroy):
    destroy.run(SUBNET_IN_USE, SUBNET_IN_USE)
    seen = destroy.seen
    assert len(seen.fake.options) == 3
    assert sum(seen.waits) >= 120
    assert all(one == {"exclude_protected": True} for one in seen.fake.options)
    assert "NIC" in seen.steps[0]


def test_a_nic_that_stays_is_named(destroy):
    with pytest.raises(SunspotError, match=f"az network nic delete --ids {NIC}"):
        destroy.run(*[SUBNET_IN_USE] * 20)
    # A NIC is reserved for 180 s after its machine is gone.
    assert sum(destroy.seen.waits) >= 180
    assert len(destroy.seen.fake.options) < 10


def test_a_machine_that_the_stack_does_not_know_is_named(destroy):
    machine_id = (
        "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/virtualMachines/head"
    )
    refused = f"Network Interface {NIC} is used by existing resource {machine_id}. In order to"
    with pytest.raises(
        SunspotError, match=f"the machine head.*az vm delete --yes --ids {machine_id}\\n"
    ):
        destroy.run(f'Code="NicInUse" Message="{refused} delete the network interface"')


def test_another_error_of_a_destruction_is_told_at_once(destroy):
    with pytest.raises(SunspotError, match="ScopeLocked"):
        destroy.run("ScopeLocked: a lock")
    assert destroy.seen.waits == []
