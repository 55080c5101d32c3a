"""Stack files: found, read, refused with the file, the key and the fix."""

import json
from pathlib import Path

import jsonschema
import pytest
import yaml

from sunspot import registry, stack
from sunspot.errors import UsageError
from sunspot.spec import RayNodeConfig
from sunspot.stack import Stack
from sunspot.targets.azure.settings import AzureSettings

ROOT = Path(__file__).resolve().parent.parent
SHIPPED = stack.names(ROOT)
NEEDS = {"cpu": 2, "memory_gb": 8}


def parse(cluster=None, **keys):
    block = {"sunspot:cluster": {"head_node": NEEDS} if cluster is None else cluster, **keys}
    return Stack.parse(block, name="dev")


def refusal(action, *arguments, **keywords):
    with pytest.raises(UsageError) as caught:
        action(*arguments, **keywords)
    return str(caught.value)


# The shipped files


def test_shipped_stacks_are_there():
    assert {"dev", "cpu", "gpu", "hybrid"} <= set(SHIPPED)


@pytest.mark.parametrize("name", SHIPPED)
def test_shipped_stack_loads_and_comes_back_from_json(name):
    loaded = stack.load(name, ROOT)
    assert loaded.name == name
    assert AzureSettings.of(loaded).location
    assert Stack.model_validate(loaded.model_dump(mode="json")) == loaded
    assert Stack.model_validate_json(loaded.model_dump_json()) == loaded


@pytest.mark.parametrize("name", SHIPPED)
def test_shipped_stack_fits_every_target(name):
    loaded = stack.load(name, ROOT)
    for target in registry.PACKAGES:
        moved = loaded.for_target(target)
        assert moved.target == target
        assert moved.cluster == loaded.cluster  # sizes are named, so nothing is left to choose


@pytest.mark.parametrize(
    ("name", "target", "head_gpus", "worker_gpus"),
    [
        ("dev", "local", 0, 0),
        ("cpu", "azure", 0, 0),
        ("gpu", "azure", 1, 1),
        ("hybrid", "azure", 0, 1),
    ],
)
def test_shipped_stack_is_what_its_name_says(name, target, head_gpus, worker_gpus):
    loaded = stack.load(name, ROOT)
    (group,) = loaded.cluster.scaling_groups
    assert loaded.target == target
    assert loaded.cluster.head_node.gpu_count == head_gpus
    assert group.worker_nodes.gpu_count == worker_gpus
    assert (group.market, group.min_workers) == ("spot", 0)


# The JSON schema


def test_schema_is_one():
    schema = stack.schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert schema["title"]


def test_every_field_of_the_schema_is_described():
    schema = stack.schema()
    for block in (schema, *schema["$defs"].values()):
        for name, field in block["properties"].items():
            assert field.get("description"), name


@pytest.mark.parametrize("name", SHIPPED)
def test_schema_accepts_the_shipped_files(name):
    text = (ROOT / f"Pulumi.{name}.yaml").read_text()
    jsonschema.validate(yaml.safe_load(text)["config"]["sunspot:cluster"], stack.schema())


@pytest.mark.parametrize(
    "cluster",
    [
        {"head_node": NEEDS, "headnode": NEEDS},
        {"head_node": {**NEEDS, "gpus": 1}},
        {"head_node": {"cpu": 2}},
        {"head_node": {"cpu": -1, "memory_gb": 8}},
        {"head_node": {"cpu": True, "memory_gb": 8}},
        {"head_node": NEEDS, "scaling_groups": [{"worker_nodes": NEEDS, "name": "GPU"}]},
        {"head_node": NEEDS, "scaling_groups": [{"worker_nodes": NEEDS, "market": "cheap"}]},
        {"head_node": NEEDS, "ray_version": "1.0"},
        {},
    ],
)
def test_schema_and_parser_refuse_the_same(cluster):
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(cluster, stack.schema())
    assert refusal(parse, cluster)


# Parsing


def test_defaults():
    parsed = parse()
    assert (parsed.name, parsed.target, parsed.settings) == ("dev", "azure", {})
    assert AzureSettings.of(parsed).location is None


def test_other_namespaces_are_left_alone():
    parsed = parse(**{"azure-native:location": "uksouth", "azure-native:clientSecret": {"x": 1}})
    assert AzureSettings.of(parsed).location == "uksouth"


def test_cluster_may_be_json_text_as_pulumi_hands_it_on():
    text = '{"head_node": {"cpu": 2, "memory_gb": 8}}'
    assert parse(text) == parse({"head_node": NEEDS})


def in_group(**values):
    group = {"worker_nodes": NEEDS, **values}
    return {"sunspot:cluster": {"head_node": NEEDS, "scaling_groups": [group]}}


def in_head(**values):
    return {"sunspot:cluster": {"head_node": values}}


@pytest.mark.parametrize(
    ("block", "expected"),
    [
        ({}, ["config > sunspot:cluster: missing: give the cluster"]),
        (
            {"sunspot:targt": "local"},
            ["config > sunspot:targt: unknown key (did you mean sunspot:target?)", "known: "],
        ),
        ({"target": "local"}, ["config > target: unknown key (did you mean sunspot:target?)"]),
        (
            {"sunspot:target": "azur"},
            [
                "config > sunspot:target: 'azur'",
                "local, azure, ",
                "(did you mean azure?)",
            ],
        ),
        ({"azure-native:location": 7}, ["config > azure-native:location: 7 is not text"]),
        (
            {"azure-native:location": {"secure": "v1:abc"}},
            ["config > azure-native:location: is encrypted", "--secret"],
        ),
        ({"sunspot:cluster": "hello"}, ['config > sunspot:cluster: "hello" is not a mapping']),
        ({"sunspot:cluster": {"head_node": 5}}, ["> head_node: 5 is not a mapping"]),
        ({"sunspot:cluster": {}}, ["sunspot:cluster > head_node: missing: give the head"]),
        (
            in_head(cpus=4, memory_gb=8),
            ["head_node > cpus: unknown key (did you mean cpu?)", "known: cpu, memory_gb"],
        ),
        (in_head(cpu=4, memory_gb=1), ["head_node > memory_gb: 1 is too small: give 2 or more"]),
        (in_head(cpu=-1, memory_gb=8), ["head_node > cpu: -1 is too small", "0 or more"]),
        (in_head(cpu="4", memory_gb=8), ['head_node > cpu: "4" is not a number', "without quotes"]),
        (in_head(cpu=True, memory_gb=8), ["head_node > cpu: true is not a number"]),
        (in_head(cpu=float("nan"), memory_gb=8), ["head_node > cpu: NaN is not finite"]),
        (in_head(cpu=4), ["head_node: memory_gb missing"]),
        (in_head(vm_size="D4s_v9"), ["head_node > vm_size: 'D4s_v9'", "Standard_D4s_v5"]),
        (in_head(vm_size="D4s_v9"), ["give its cpu, memory_gb and gpu_count as well"]),
        (in_head(vm_size="D4s_v9", cpu=4), ["head_node > vm_size: 'D4s_v9'", "memory_gb"]),
        (in_head(vm_size="D4s v9", **NEEDS), ["vm_size: 'D4s v9' is not the name of a VM size"]),
        (in_head(vm_size="D4s_v9", cpu=0.5, memory_gb=8), ["vm_size: cpu 0.5 is not whole"]),
        (in_head(vm_size="NC6s_v3"), ["head_node > vm_size: ", "use Standard_NC24ads_A100_v4"]),
        (
            in_head(vm_size="NC6s_v3", cpu=6, memory_gb=112, gpu_count=1),
            ["head_node > vm_size: ", "use Standard_NC24ads_A100_v4"],
        ),
        (in_head(**{**NEEDS, "gpu_count": 1.5}), ["gpu_count: 1.5 is not a whole number"]),
        ({"sunspot:cluster": {"head_node": {1: 2}}}, ["sunspot:cluster > head_node"]),
        (
            in_group(max_workers=0),
            ["config > sunspot:cluster > scaling_groups[0] > max_workers: 0 is too small"],
        ),
        (
            in_group(min_workers=3, max_workers=2),
            ["scaling_groups[0] > max_workers: max_workers 2 is below min_workers 3: raise"],
        ),
        (
            in_group(min_workers=0),
            ["> autoscaler_config: missing", "workers 0-1", "cpu 0.5 and memory_gb 1"],
        ),
        (in_group(market="spott"), ['> market: "spott" is unknown', "(did you mean spot?)"]),
        (in_group(name="Head"), ["scaling_groups[0] > name: 'Head'"]),
        (
            in_group(worker_nodes={"cpu": 4, "memory_gb": 8, "gpu": 1}),
            ["scaling_groups[0] > worker_nodes > gpu: unknown key (did you mean gpu_count?)"],
        ),
        (
            {"sunspot:cluster": {"head_node": NEEDS, "scaling_groups": {"a": 1}}},
            ["scaling_groups: ", "is not a list", "`- `"],
        ),
        (
            {"sunspot:cluster": {"head_node": NEEDS, "ray_version": 2.6}},
            ["ray_version: 2.6 is not text: write it in quotes"],
        ),
    ],
)
def test_refusals_name_the_file_the_key_and_the_fix(block, expected):
    block = {"sunspot:cluster": {"head_node": NEEDS}, **block} if block else block
    message = refusal(Stack.parse, block, name="dev")
    assert message.startswith("Pulumi.dev.yaml:\n  config > ")
    for part in expected:
        assert part in message
    assert len(message.splitlines()) == 2


def test_all_problems_are_listed_one_a_line():
    block = {
        "sunspot:targt": "local",
        "sunspot:cluster": {
            "head_node": {"cpu": -1, "memory_gb": 1},
            "scaling_groups": [
                {"worker_nodes": NEEDS},
                {"worker_nodes": {"vm_size": "nope"}, "max_workers": 0, "market": "x"},
            ],
            "autoscaler_config": {"cpu": 1},
        },
    }
    first, *problems = refusal(Stack.parse, block, name="a", source="some/file.yaml").splitlines()
    assert first == "some/file.yaml:"
    assert [line.split(": ")[0].strip() for line in problems] == [
        "config > sunspot:targt",
        "config > sunspot:cluster > head_node > cpu",
        "config > sunspot:cluster > head_node > memory_gb",
        "config > sunspot:cluster > scaling_groups[1] > worker_nodes > vm_size",
        "config > sunspot:cluster > scaling_groups[1] > max_workers",
        "config > sunspot:cluster > scaling_groups[1] > market",
        "config > sunspot:cluster > autoscaler_config > memory_gb",
    ]


def test_long_values_are_cut():
    message = refusal(parse, "x" * 5000)
    assert len(message) < 300


def test_azure_settings_may_be_json_text_too():
    settings = {
        "sunspot:access": {"ssh_cidrs": ["203.0.113.7"]},
        "sunspot:network": {"address_space": "10.1.0.0/16"},
        "sunspot:image": {"reference": "rayproject/ray:2.60.0"},
        "sunspot:storage": {"retention_days": 7},
        "sunspot:tags": {"team": "vision"},
    }
    parsed = parse(**settings, **{"sunspot:owner": "ada"})
    texts = {key: json.dumps(value) for key, value in settings.items()}
    assert parse(**texts, **{"sunspot:owner": "ada"}) == parsed
    azure = AzureSettings.of(parsed)
    assert azure.access.ssh_cidrs == ("203.0.113.7/32",)
    assert (azure.storage.retention_days, azure.owner) == (7, "ada")


def test_azure_settings_have_safe_defaults():
    azure = AzureSettings.of(parse())
    access = azure.access
    assert (access.public_ip, access.ssh_cidrs, access.bastion) == (False, (), False)
    assert azure.storage.protect


# Targets


def test_needs_become_the_cheapest_size_where_machines_are_azures():
    target = "azure"
    cluster = {
        "head_node": {"cpu": 3, "memory_gb": 10},
        "scaling_groups": [{"worker_nodes": {"cpu": 1, "memory_gb": 2, "gpu_count": 1}}],
    }
    sized = parse(cluster).for_target(target)
    assert sized.target == target
    assert sized.cluster.head_node == RayNodeConfig(vm_size="Standard_D4s_v5")
    assert sized.cluster.scaling_groups[0].worker_nodes.vm_size == "Standard_NC4as_T4_v3"
    assert sized.for_target(target) == sized


def test_any_needs_will_do_on_this_machine():
    target = "local"
    huge = parse({"head_node": {"cpu": 1000, "memory_gb": 9000, "gpu_count": 99}})
    assert huge.for_target(target).cluster == huge.cluster


def test_needs_that_no_size_fits_are_all_listed():
    cluster = {
        "head_node": {"cpu": 4, "memory_gb": 4000},
        "scaling_groups": [{"worker_nodes": {"cpu": 2, "memory_gb": 4, "gpu_count": 12}}],
    }
    message = refusal(parse(cluster).for_target, "azure")
    assert "stack dev on azure:\n" in message
    assert "config > sunspot:cluster > head_node: No VM size" in message
    assert "4 vCPU, 4000 GiB" in message
    assert "scaling_groups[0] > worker_nodes: " in message
    assert "short of 4 GPUs" in message


def test_unknown_target_is_refused():
    message = refusal(parse().for_target, "kubernets")
    for part in ("'kubernets'", "local, azure, ", "(did you mean kubernetes?)"):
        assert part in message


# When it is idle


IDLE = "sunspot:idle"


def with_idle(given):
    return Stack.parse(
        {"sunspot:cluster": {"head_node": {"cpu": 1, "memory_gb": 2}}, IDLE: given}, name="x"
    )


@pytest.mark.parametrize(
    ("given", "minutes"),
    [({"action": "warn"}, 60), ('{"action": "workers", "after_minutes": 0.1}', 0.1)],
)
def test_a_policy_for_when_it_is_idle(given, minutes):
    idle = with_idle(given).idle
    assert idle is not None
    assert idle.after_minutes == minutes


@pytest.mark.parametrize("given", [{}, "{}"])
def test_an_empty_block_is_no_policy_as_pulumi_fills_it_in(given):
    assert with_idle(given).idle is None


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"action": "stop"}, "action"),
        ({"after_minutes": 60}, "action"),
        ({"action": "warn", "after_minutes": 0}, "after_minutes"),
        ({"action": "warn", "after_minutes": 10081}, "after_minutes"),
        ({"action": "warn", "after_minutes": "60"}, "after_minutes"),
        ({"action": "warn", "hours": 1}, "hours"),
        (7, IDLE),
    ],
)
def test_what_is_wrong_with_such_a_policy_is_named(given, named):
    with pytest.raises(UsageError, match=rf"{IDLE}.*{named}|{named}"):
        with_idle(given)
