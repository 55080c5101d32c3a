"""The whole program, as each shipped stack file and the engine's own reader start it."""

import json
import runpy
from collections import Counter

import pulumi
import pytest
import yaml
from azure_model.pulumi_mocks import run_program, texts
from builds import PUBLIC_KEY, ROOT, SHIPPED, build, group, make_stack, run_shipped

from infra.place import answered
from sunspot import registry
from sunspot import stack as stacks

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
# Azure's own list of what has no tags: parts of another resource, and rights.
UNTAGGED = {
    "BlobServiceProperties",
    "BlobContainer",
    "ManagementPolicy",
    "RoleAssignment",
    "RoleDefinition",
    "TaskRun",
}


def main_of(name):
    """What `python __main__.py` exports for a stack file, its settings as the engine hands them."""
    block = yaml.safe_load((ROOT / f"Pulumi.{name}.yaml").read_text())["config"]
    block["sunspot:access"] = {"ssh_public_key": PUBLIC_KEY}
    config = {k: v if isinstance(v, str) else json.dumps(v) for k, v in block.items()}
    exported = {}

    def program():
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(pulumi, "export", exported.__setitem__)
            patch.chdir(ROOT)
            patch.setattr("sunspot.targets.azure.scaling.running", lambda _: None)
            runpy.run_path(str(ROOT / "__main__.py"))
        return exported

    return run_program(program, stack=name, config=config)


@pytest.mark.parametrize("name", SHIPPED)
def test_both_readers_of_a_stack_file_make_the_same(name):
    by_engine, by_file = main_of(name), run_shipped(name)
    assert by_engine.outputs == by_file.outputs
    assert {r.urn for r in by_engine.resources} == {r.urn for r in by_file.resources}
    ours = {r.urn: r.inputs for r in by_file.resources if r.kind != "Secret"}
    assert {r.urn: r.inputs for r in by_engine.resources if r.kind != "Secret"} == ours


def test_every_urn_is_there_once(shipped, rich):
    for run in (shipped, rich):
        assert {urn: n for urn, n in Counter(r.urn for r in run.resources).items() if n > 1} == {}


def test_everything_is_within_the_cluster(shipped):
    urns = {resource.urn for resource in shipped.resources}
    roots = [r for r in shipped.resources if r.parent not in urns]
    assert [root.kind for root in roots] == ["AzureRayCluster"]


def test_every_component_registers_its_outputs(rich):
    components = {r.urn for r in rich.resources if not r.custom}
    assert components <= rich.registered_outputs


def test_everything_that_can_be_is_tagged(rich):
    for resource in rich.resources:
        if not resource.custom or resource.kind in UNTAGGED:
            continue
        tags = resource.inputs["tags"]
        assert {
            "project": "sunspot",
            "stack": "rich",
            "owner": "ada",
            "team": "vision",
        }.items() <= (tags.items()), resource.name


def test_nodes_are_tagged_with_their_group(rich):
    assert rich.one("VirtualMachine").inputs["tags"]["group"] == "head"
    groups = {s.inputs["vmScaleSetName"]: s.inputs["tags"]["group"] for s in rich.of(SCALE_SET)}
    assert groups == {
        "sunspot-rich-fixed": "fixed",
        "sunspot-rich-steady": "steady",
        "sunspot-rich-gpu": "gpu",
        "sunspot-rich-both": "both",
        "sunspot-rich-both-on-demand": "both",
    }


SCALE_SET = "VirtualMachineScaleSet"


def test_everything_is_in_the_region_and_the_group(shipped):
    group_name = shipped.one("ResourceGroup").id.rsplit("/", 1)[1]
    for resource in shipped.resources:
        assert resource.inputs.get("location", "uksouth") == "uksouth"
        assert resource.inputs.get("resourceGroupName", group_name) == group_name


def test_outputs(shipped):
    outputs = shipped.outputs
    assert set(outputs) == OUTPUTS
    assert outputs["head_address"] == outputs["head_private_ip"] == "10.60.128.4"
    assert outputs["job_address"] == outputs["dashboard_url"] == "http://127.0.0.1:8265"
    assert outputs["ssh_command"] == "ssh sunspot@10.60.128.4"
    assert outputs["tunnel_command"] == "ssh -N -L 8265:127.0.0.1:8265 sunspot@10.60.128.4"
    assert outputs["token_secret"] == "https://sunspot1a2b3c4d.vault.azure.net/secrets/ray-token"
    assert outputs["storage_url"] == "abfss://results@sunspot1a2b3c4d.dfs.core.windows.net/"
    cost = outputs["estimated_cost_per_hour"]
    assert 0 < cost["minimum"] < cost["maximum"]
    assert cost["currency"] == "USD"
    assert cost["prices"].startswith("eastus, ")
    assert shipped.secret_outputs == set()


def test_no_output_became_an_error_text(rich):
    for text in texts([rich.outputs, *(r.inputs for r in rich.resources)]):
        assert "Output[T]" not in text


def test_no_question_is_asked_of_azure(shipped):
    assert shipped.invokes == []


def test_head_address_is_the_public_one_where_there_is_one():
    made = build(make_stack(access={"public_ip": True, "ssh_cidrs": ["203.0.113.0/24"]}))
    assert made.outputs["head_address"] == "198.51.100.7"
    assert made.outputs["head_private_ip"] == "10.60.128.4"
    assert made.outputs["ssh_command"] == "ssh sunspot@198.51.100.7"


def test_through_a_bastion_azure_carries_ssh(rich):
    outputs = rich.outputs
    assert outputs["ssh_command"].startswith("az network bastion ssh --name ")
    assert rich.one("VirtualMachine").id in outputs["ssh_command"]
    assert outputs["tunnel_command"].endswith(" -- -N -L 8265:127.0.0.1:8265")


@pytest.mark.parametrize(
    ("file", "word"),
    [("keys/id.pub", "keys/id"), ("my keys/id.pub", "'my keys/id'"), ("~/a b.pub", "~/'a b'")],
)
def test_a_key_file_is_quoted_for_the_shell(tmp_path, monkeypatch, file, word):
    monkeypatch.setenv("HOME", str(tmp_path))
    place = tmp_path / file.removeprefix("~/")
    place.parent.mkdir(exist_ok=True)
    place.write_text(PUBLIC_KEY)
    access = {"bastion": True, "ssh_public_key": None, "ssh_public_key_file": file}
    stack = make_stack(access=access)
    assert build(stack, folder=tmp_path).outputs["ssh_command"].endswith(f" --ssh-key {word}")


def test_an_unreachable_head_is_warned_of(monkeypatch):
    said = []
    monkeypatch.setattr(pulumi.log, "warn", said.append)
    build(make_stack(access={"ssh_cidrs": ["10.0.0.0/8"]}))
    assert said == []
    build(make_stack())
    assert "ssh_cidrs" in said[0]


def test_refusals_come_without_a_traceback_and_before_any_resource():
    config = {
        "sunspot:cluster": '{"head_node": {"vm_size": "Standard_D4s_v9"}}',
        "sunspot:targt": "azure",
    }
    seen = []

    def program():
        with pytest.raises(pulumi.RunError) as caught:
            runpy.run_path(str(ROOT / "__main__.py"))
        seen.append(str(caught.value))
        return {}

    run = run_program(program, config=config)
    assert run.resources == []
    assert "config > sunspot:targt: unknown key" in seen[0]
    assert "head_node > vm_size: 'Standard_D4s_v9'" in seen[0]


SUBNET_ID = (
    "/subscriptions/s/resourceGroups/g/providers/Microsoft.Network/virtualNetworks/v/subnets/a"
)


@pytest.mark.parametrize("own_network", [True, False])
def test_a_preview_needs_no_answers(own_network):
    network = {} if own_network else {"subnet_ids": {"head": SUBNET_ID, "workers": SUBNET_ID}}
    stack = make_stack(group(), network=network)
    made = build(stack, preview=True, silent=True)
    assert len(made.resources) == len(build(stack).resources)


def test_an_update_that_azure_does_not_answer_says_what_is_missing():
    def program():
        with pytest.raises(ValueError, match="vault"):
            answered(None, "the vault's address")
        return {}

    run_program(program)


def test_a_cluster_may_have_no_workers():
    made = build(make_stack())
    assert made.of(SCALE_SET) == []
    assert len(made.of("VirtualMachine")) == 1


def test_the_same_stack_makes_the_same_twice():
    def shape():
        made = build(make_stack(group("gpu", max_workers=3)))
        return {r.urn: r.inputs for r in made.resources if r.kind != "Secret"}

    assert shape() == shape()


def test_project_file_and_stack_agree_on_keys_and_defaults():
    declared = yaml.safe_load((ROOT / "Pulumi.yaml").read_text())["config"]
    known = {*stacks.KEYS, *(key for kind in registry.settings().values() for key in kind.KEYS)}
    assert set(declared) == {key for key in known if key.startswith(stacks.NAMESPACE)}
    assert all(entry["description"] for entry in declared.values())
    defaults = {key: entry["default"] for key, entry in declared.items() if "default" in entry}
    assert set(declared) - set(defaults) == {"sunspot:cluster"}
    cluster = {"sunspot:cluster": {"head_node": {"vm_size": "Standard_D4s_v5"}}}
    # The engine fills defaults in, the other reader does not.
    filled = {k: v if isinstance(v, str) else json.dumps(v) for k, v in defaults.items()}
    assert stacks.Stack.parse({**filled, **cluster}, name="x") == stacks.Stack.parse(
        cluster, name="x"
    )
