"""The program under the real engine, from the first preview to nothing left."""

import json
from pathlib import Path

import pytest
import yaml
from azure_model.answers import PUBLIC_ADDRESS
from azure_model.cloud import part
from azure_model.pulumi_wire import opened
from machines.pulumi_project import PUBLIC_KEY, ROOT, Project
from stack_settings import KEPT, STACK, settings

from sunspot import stack as stacks
from sunspot.node.azure.live import decoded, parse

# Each runs the CLI up to three times: 20 s on an idle machine, minutes on a busy one.
pytestmark = pytest.mark.timeout(900)

OUTPUTS = {
    "head_address",
    "head_private_ip",
    "job_address",
    "dashboard_url",
    "ssh_command",
    "tunnel_command",
    "token_secret",
    "storage_url",
    "resource_group",
    "estimated_cost_per_hour",
}
FIXED = "sunspot-x-fixed-vmss"
ELASTIC = "sunspot-x-gpu-vmss"
HEAD = "sunspot-x-head-vm"
STATE = "sunspot-x-head-state"
COPIES = "sunspot-x-registry-copies"
QUOTA = (
    "OperationNotAllowed: Operation could not be completed as it results in exceeding approved "
    "LowPriorityCores quota."
)


def of_kind(project: Project, kind: str) -> dict[str, dict]:
    """The cloud's resources of one kind, secrets opened: id -> inputs."""
    found = project.cloud.resources().items()
    return {i: opened(r["inputs"]) for i, r in found if r["kind"] == kind}


def scale_set(project: Project, name: str) -> tuple[str, dict]:
    """A scale set's id and inputs."""
    sets = of_kind(project, "VirtualMachineScaleSet").items()
    (found,) = [(i, inputs) for i, inputs in sets if i.endswith(f"/{name.removesuffix('-vmss')}")]
    return found


def only_new(project: Project) -> dict[str, set[str]]:
    """What was asked of Azure since the last time: name in the program -> operations."""
    asked: dict[str, set[str]] = {}
    for operation, name in project.cloud.take_notes():
        asked.setdefault(name, set()).add(operation)
    return asked


def files_in(folder: Path) -> list[Path]:
    """The files in a folder, without those behind links."""
    return [p for p in folder.rglob("*") if p.is_file() and not p.is_symlink()]


# The other stack files: tests/infra/test_program.py, without the engine.
@pytest.mark.parametrize("name", ["aks", "hybrid"])
def test_preview_of_a_shipped_stack_asks_nothing_of_azure(empty, tmp_path, name):
    project = empty.copied(tmp_path / "project")
    config = yaml.safe_load((ROOT / f"Pulumi.{name}.yaml").read_text())["config"]
    is_aks = config.get("sunspot:target") == "kubernetes"
    # What a user must add.
    added = (
        {"sunspot:aks": {"authorized_ip_ranges": ["203.0.113.7/32"]}}
        if is_aks
        else {"sunspot:access": {"ssh_public_key": PUBLIC_KEY}}
    )
    project.write_stack(name, {**config, **added})
    project.pulumi("stack", "init", name)
    steps = project.json("preview", "-s", name)["steps"]
    assert {step["op"] for step in steps} == {"create"}
    kinds = [step["urn"].split("::")[-2].rsplit(":", 1)[1] for step in steps]
    for kind in ["ManagedCluster"] if is_aks else ["VirtualMachine", "VirtualMachineScaleSet"]:
        assert kinds.count(kind) == 1
    assert only_new(project) == {}


def test_outputs_are_what_a_user_needs(up):
    outputs = up.json("stack", "output", "-s", STACK, "--show-secrets")
    group, vault, account = (
        outputs[key] for key in ("resource_group", "token_secret", "storage_url")
    )
    assert set(outputs) == OUTPUTS
    assert outputs["head_address"] == PUBLIC_ADDRESS
    assert outputs["head_private_ip"] == "10.60.128.4"
    assert outputs["job_address"] == outputs["dashboard_url"] == "http://127.0.0.1:8265"
    assert outputs["ssh_command"] == f"ssh sunspot@{PUBLIC_ADDRESS}"
    assert outputs["tunnel_command"] == f"ssh -N -L 8265:127.0.0.1:8265 sunspot@{PUBLIC_ADDRESS}"
    assert [i.rsplit("/", 1)[1] for i in of_kind(up, "ResourceGroup")] == [group]
    (vault_id,) = of_kind(up, "Vault")
    assert vault == f"https://{vault_id.rsplit('/', 1)[1]}.vault.azure.net/secrets/ray-token"
    (account_id,) = of_kind(up, "StorageAccount")
    assert account == f"abfss://results@{account_id.rsplit('/', 1)[1]}.dfs.core.windows.net/"
    cost = outputs["estimated_cost_per_hour"]
    assert 0 < cost["minimum"] < cost["maximum"]


def test_the_stack_file_that_pulumi_has_written_in_is_still_read(up):
    file = up.program / f"Pulumi.{STACK}.yaml"
    assert "encryptionsalt" in yaml.safe_load(file.read_text())
    loaded = stacks.load(STACK, up.program)
    assert [group.name for group in loaded.cluster.scaling_groups] == ["fixed", "gpu"]


def test_up_again_changes_nothing(deployed):
    deployed.up(STACK, "--expect-no-changes")
    assert only_new(deployed) == {}


def test_another_size_of_a_fixed_group_changes_its_scale_set_alone(deployed):
    deployed.write_stack(STACK, settings(fixed=3))
    deployed.up(STACK)
    assert only_new(deployed) == {FIXED: {"update"}}
    assert part(scale_set(deployed, FIXED)[1], "sku.capacity") == 3

    # Ray's autoscaler does not take over the workers that are there.
    elastic = settings(fixed=3)
    elastic["sunspot:cluster"]["scaling_groups"][0]["max_workers"] = 4
    deployed.write_stack(STACK, elastic)
    steps = deployed.json("preview", "-s", STACK)["steps"]
    assert {one["op"] for one in steps if one["urn"].endswith(f"::{FIXED}")} >= {"replace"}


def unprotect(project: Project, *names: str) -> None:
    """What docs/azure.md names for plain Pulumi."""
    for name in names:
        (urn,) = [urn for urn in project.state(STACK) if urn.endswith(f"::{name}")]
        project.pulumi("state", "unprotect", urn, "--yes", "-s", STACK)


def test_another_image_replaces_the_head_and_changes_the_sets_in_place(deployed):
    deployed.cloud.change(scale_set(deployed, ELASTIC)[0], "sku.capacity", 3)
    before = deployed.cloud.resources()
    deployed.write_stack(STACK, settings(image={"reference": "rayproject/ray:2.60.0-py312"}))
    refused = deployed.pulumi("up", "-s", STACK, "--yes", fails=True)
    assert "as it is currently marked for protection" in refused
    assert only_new(deployed) == {}
    unprotect(deployed, HEAD)
    deployed.up(STACK)
    notes = deployed.cloud.take_notes()
    replaced = [(done, name) for done in ("create", "delete") for name in (HEAD, COPIES)]
    changed = [("update", name) for name in (FIXED, ELASTIC)]
    assert sorted(notes) == sorted([*replaced, *changed])
    # Neither card nor name can be had twice.
    assert notes.index(("delete", HEAD)) < notes.index(("create", HEAD))
    # No machine boots before its image is in the registry.
    copied = notes.index(("create", COPIES))
    assert all(copied < notes.index(step) for step in (("create", HEAD), *changed))
    # Nobody's worker goes.
    assert part(scale_set(deployed, ELASTIC)[1], "sku.capacity") == 3
    after = deployed.cloud.resources()
    runs = {i for i in {**before, **after} if "/taskRuns/" in i}
    assert len(runs) == 2
    assert set(after) - runs == set(before) - runs
    (head,) = of_kind(deployed, "VirtualMachine")
    machines = {head, scale_set(deployed, FIXED)[0], scale_set(deployed, ELASTIC)[0]}
    assert {i for i in after if after[i] != before.get(i)} - runs == machines


def test_other_groups_reach_the_head_that_runs(deployed):
    (before,) = of_kind(deployed, "VirtualMachine").items()
    edited = settings()
    fixed, elastic = edited["sunspot:cluster"]["scaling_groups"]
    more = {**elastic, "name": "more"}
    edited["sunspot:cluster"]["scaling_groups"] = [fixed, {**elastic, "max_workers": 8}, more]
    deployed.write_stack(STACK, edited)
    deployed.up(STACK)
    asked = only_new(deployed)
    assert asked.pop(HEAD) == {"update"}
    assert {name.rpartition("-more")[0] for name in asked} >= {"sunspot-x", "sunspot-x-head-scales"}
    assert set().union(*asked.values()) == {"create"}
    (after,) = of_kind(deployed, "VirtualMachine").items()
    assert after[0] == before[0]
    maximums = [_maximums(inputs) for _, inputs in (before, after)]
    assert maximums == [{"gpu": 4}, {"gpu": 8, "more": 4}]

    deployed.write_stack(STACK, settings())
    deployed.up(STACK)
    asked = only_new(deployed)
    assert asked.pop(HEAD) == {"update"}
    assert set().union(*asked.values()) == {"delete"}


def _maximums(head: dict) -> dict[str, int]:
    """What the head's autoscaler follows."""
    config = parse(decoded(head["userData"])).autoscaler
    assert config is not None
    return config["provider"]["maximums"]


def test_an_update_leaves_the_size_to_the_autoscaler(deployed):
    elastic, inputs = scale_set(deployed, ELASTIC)
    assert part(inputs, "sku.capacity") == 0
    deployed.cloud.change(elastic, "sku.capacity", 3)
    deployed.write_stack(STACK, settings(tags={"team": "vision"}))
    deployed.up(STACK)
    _, inputs = scale_set(deployed, ELASTIC)
    assert part(inputs, "tags.team") == "vision"
    assert part(inputs, "sku.capacity") == 3
    assert set().union(*only_new(deployed).values()) == {"update"}


def test_up_goes_on_where_a_refused_creation_stopped_it(fresh):
    fresh.cloud.refuse({FIXED: QUOTA})
    printed = fresh.up(STACK, fails=True)
    assert QUOTA in printed
    assert "Traceback" not in printed
    made = only_new(fresh)
    assert made[FIXED] == {"create"}
    before = set(fresh.cloud.resources())
    assert before

    fresh.cloud.refuse({})
    fresh.up(STACK)
    again = only_new(fresh)
    assert again[FIXED] == {"create"}
    assert not (set(again) & set(made)) - {FIXED}
    assert before < set(fresh.cloud.resources())
    assert set(fresh.json("stack", "output", "-s", STACK)) == OUTPUTS


def test_an_assignment_of_a_role_that_azure_does_not_know_yet_is_repeated(fresh):
    fresh.cloud.replicate_late(2)
    fresh.up(STACK)
    asked = [name for operation, name in fresh.cloud.take_notes() if operation == "create"]
    assert len(asked) == len(fresh.cloud.resources()) + 2
    # Two of the head's, and two of the workers'.
    assert len(of_kind(fresh, "RoleDefinition")) == 4


def test_who_may_not_define_roles_uses_built_in_ones(fresh):
    denied = (
        "AuthorizationFailed: The client 'c' with object id 'o' does not have authorization to "
        "perform action 'Microsoft.Authorization/roleDefinitions/write' over scope '/s'."
    )
    roles = ("scaler", "machines", "leaver", "leaving")
    fresh.cloud.refuse({f"sunspot-x-role-{role}": denied for role in roles})
    assert denied in fresh.up(STACK, fails=True)
    access = settings()["sunspot:access"]
    fresh.write_stack(STACK, {**settings(), "sunspot:access": {**access, "custom_roles": False}})
    fresh.up(STACK)
    assert of_kind(fresh, "RoleDefinition") == {}


def test_destroy_leaves_nothing(deployed):
    unprotect(deployed, HEAD, STATE)
    deployed.pulumi("destroy", "-s", STACK, "--yes", "--skip-preview")
    assert deployed.cloud.resources() == {}
    assert deployed.state(STACK) == {}


def test_protected_results_outlive_the_cluster(deployed):
    deployed.write_stack(STACK, settings(storage={"protect": True}))
    deployed.up(STACK)
    deployed.cloud.take_notes()
    printed = deployed.pulumi("destroy", "-s", STACK, "--yes", fails=True)
    assert "cannot be deleted\n    because it is protected" in printed
    assert only_new(deployed) == {}

    unprotect(deployed, HEAD, STATE)
    deployed.pulumi("destroy", "-s", STACK, "--yes", "--skip-preview", "--exclude-protected")
    left = [resource["kind"] for resource in deployed.cloud.resources().values()]
    assert set(left) == KEPT


def test_the_token_is_nowhere_in_clear(up):
    (secret,) = of_kind(up, "Secret").values()
    token = part(secret, "properties.value")
    assert len(token) == 64
    shown = up.pulumi("stack", "export", "-s", STACK)
    exported = json.loads(shown)["deployment"]
    assert token not in shown
    assert token in up.pulumi("stack", "export", "-s", STACK, "--show-secrets")
    assert exported["secrets_providers"]["type"] == "passphrase"
    # State, history and backups, settings, and what the CLI keeps for itself.
    folders = (up.folder / "state", up.folder / "home", up.program)
    files = [path for folder in folders for path in files_in(folder)]
    assert any(path.parent.name == "sunspot" for path in files)
    assert [path for path in files if token.encode() in path.read_bytes()] == []


def test_a_wrong_stack_is_refused_before_any_resource(fresh):
    wrong = settings(targt="azure")
    wrong["sunspot:cluster"]["head_node"] = {"vm_size": "Standard_D4s_v9"}
    wrong["sunspot:access"]["ssh_cidrs"] = ["0.0.0.0/0"]
    fresh.write_stack(STACK, wrong)
    printed = fresh.up(STACK, fails=True)
    assert "config > sunspot:targt: unknown key" in printed
    assert "head_node > vm_size: 'Standard_D4s_v9'" in printed
    assert "'0.0.0.0/0' is the whole internet" in printed
    assert "Traceback" not in printed
    assert only_new(fresh) == {}
    assert {urn.split("::")[-2] for urn in fresh.state(STACK)} <= {"pulumi:pulumi:Stack"}


def test_a_size_that_the_region_does_not_have_is_refused_before_any_resource(fresh):
    fresh.write_stack(STACK, {**settings(), "azure-native:location": "ukwest"})
    for command in (["preview"], ["up", "--yes"]):
        printed = fresh.pulumi(*command, "-s", STACK, fails=True)
        assert "ukwest has no Standard_NC4as_T4_v3 (for gpu)" in printed
        assert "Traceback" not in printed
    assert only_new(fresh) == {}
    fresh.write_stack(STACK, {**settings(check_region=False), "azure-native:location": "ukwest"})
    assert fresh.json("preview", "-s", STACK)["steps"]


def test_a_property_that_azure_does_not_know_is_refused(fresh):
    component = fresh.program / "infra" / "head.py"
    text = component.read_text()
    right = "compute.HardwareProfileArgs(vm_size="
    assert text.count(right) == 1
    component.write_text(text.replace(right, "dict(vmSise="))
    printed = fresh.up(STACK, fails=True)
    assert "hardwareProfile.vmSise" in printed
    assert "unknown to HardwareProfileArgs" in printed
    assert of_kind(fresh, "VirtualMachine") == {}
