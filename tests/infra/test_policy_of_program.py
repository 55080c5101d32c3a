"""The stacks keep to the policies that the project gives to its users."""

import importlib
import inspect

import pytest
from builds import SHIPPED, run_shipped

from policy import sunspot_policies as policies

RULES = [
    policies.public_workers,
    policies.open_ssh,
    policies.open_api_servers,
    policies.shared_keys,
    policies.untagged,
]


def violations(run):
    return [
        (resource.name, violation)
        for resource in run.resources
        for rule in RULES
        for violation in rule(resource.type, resource.inputs)
    ]


@pytest.mark.parametrize("name", SHIPPED)
def test_shipped_stacks_comply(name):
    assert violations(run_shipped(name)) == []


def test_so_does_a_stack_with_everything(rich):
    assert violations(rich) == []


def test_taggable_is_what_has_tags_in_the_sdk(rich):
    kinds = {r.type.partition(":")[2] for r in rich.resources if r.type.startswith("azure-native:")}
    for kind in kinds | policies.TAGGABLE:
        module, name = kind.split(":")
        cls = getattr(importlib.import_module(f"pulumi_azure_native.{module}"), name)
        has_tags = "tags" in inspect.signature(cls._internal_init).parameters
        assert has_tags == (kind in policies.TAGGABLE), kind
