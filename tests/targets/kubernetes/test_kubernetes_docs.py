"""docs/kubernetes.md: its example is a stack, and it has every setting."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest
import yaml
from kubernetes_stacks import documents, worker_pod

from sunspot.stack import Stack
from sunspot.targets.kubernetes import manifest, raycluster
from sunspot.targets.kubernetes.settings import FaultTolerance, Group, KubeRay, Toleration

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "kubernetes.md").read_text()


def example():
    begin = PAGE.index("    config:\n")
    block = PAGE[begin : PAGE.index("\n\n", begin)]
    config = yaml.safe_load(textwrap.dedent(block))["config"]
    config["sunspot:cluster"]["ray_version"] = "2.60.0"
    return Stack.parse(config, name="course")


def test_the_example_is_a_stack_and_does_what_its_comments_say():
    cluster, _ = documents(example())
    group = cluster["spec"]["workerGroupSpecs"][0]
    pod = worker_pod(cluster)
    assert cluster["metadata"]["namespace"] == "ml"
    assert group["idleTimeoutSeconds"] == 60
    assert pod["nodeSelector"]["kubernetes.azure.com/agentpool"] == "gpu"
    assert len(pod["tolerations"]) == 3
    assert {"name": "data", "mountPath": "/data"} in pod["containers"][0]["volumeMounts"]


def test_the_command_for_the_token_is_the_one_that_a_manifest_begins_with():
    assert manifest.create_secret(raycluster.names(example())) in PAGE


@pytest.mark.parametrize("model", [KubeRay, Group, FaultTolerance, Toleration])
def test_every_setting_is_told(model):
    missing = [name for name in model.model_fields if f"`{name}`" not in PAGE]
    assert missing == []
