"""What a stack file may say of Kubernetes, and what is refused before anything is made."""

from __future__ import annotations

import pytest
from kubernetes_stacks import stack

from sunspot.errors import UsageError


@pytest.mark.parametrize(
    ("settings", "parts"),
    [
        # Names and labels: RFC 1123, and 1035 for what becomes a service.
        ({"name": "Course"}, ["name: 'Course'", "RFC 1035"]),
        ({"name": "1st"}, ["name: '1st'", "letter first"]),
        ({"name": "x" * 54}, ["54 characters", "53"]),
        ({"namespace": "my_space"}, ["namespace: 'my_space'", "RFC 1123"]),
        ({"namespace": "x" * 64}, ["64 characters", "63"]),
        ({"namespace": "a.b"}, ["namespace: 'a.b'"]),
        ({"token_secret": "Token"}, ["token_secret: 'Token'"]),
        ({"token_secret": "a..b"}, ["token_secret: 'a..b'"]),
        ({"service_account": "-x"}, ["service_account: '-x'"]),
        ({"image_pull_secrets": ["ok", "no spaces"]}, ["image_pull_secrets[1]: 'no spaces'"]),
        ({"cpu_nodes": {"node_selector": {"a b": "c"}}}, ["node_selector", "'a b'"]),
        ({"cpu_nodes": {"node_selector": {"/a": "c"}}}, ["node_selector", "domain", "''"]),
        ({"cpu_nodes": {"node_selector": {"a": "-c"}}}, ["node_selector > a: '-c'"]),
        ({"gpu_nodes": {"labels": {"a": "x" * 64}}}, ["labels > a", "64 characters"]),
        ({"gpu_nodes": {"labels": {"a": True}}}, ["labels > a: true", "quotes"]),
        (
            {"spot_nodes": {"labels": {"ray.io/cluster": "x"}}},
            ["'ray.io/cluster'", "KubeRay's own"],
        ),
        ({"gpu_key": "gpu"}, ["gpu_key: 'gpu'", "nvidia.com/gpu"]),
        # Tolerations, in Kubernetes' words.
        ({"cpu_nodes": {"tolerations": [{"key": "a"}]}}, ["tolerations[0]", "value", "Exists"]),
        (
            {"cpu_nodes": {"tolerations": [{"key": "a", "operator": "Exists", "value": "b"}]}},
            ["tolerations[0]", "'b'", "Equal"],
        ),
        (
            {"cpu_nodes": {"tolerations": [{"operator": "Exists", "effect": "NoExec"}]}},
            ["effect", '"NoExec"', "NoSchedule, PreferNoSchedule or NoExecute"],
        ),
        (
            {"cpu_nodes": {"tolerations": {"key": "a"}}},
            ["tolerations", "is not a list"],
        ),
        # Quantities and numbers.
        ({"shared_memory": "8 GB"}, ["shared_memory: '8 GB'", "512Mi"]),
        ({"shared_memory": "-1Gi"}, ["shared_memory: '-1Gi'"]),
        ({"shared_memory": "0Gi"}, ["shared_memory: '0Gi'", "more than 0"]),
        ({"shared_memory": 8}, ["shared_memory: 8", "quotes"]),
        ({"gcs_fault_tolerance": {"size": "10GB"}}, ["gcs_fault_tolerance > size: '10GB'"]),
        ({"gcs_fault_tolerance": {"claim": "a", "size": "1Gi"}}, ["claim 'a'", "leave out size"]),
        ({"grace_period_s": 5}, ["grace_period_s: 5", "10 or more"]),
        ({"idle_timeout_s": -1}, ["idle_timeout_s: -1"]),
        ({"reserved_memory": 1}, ["reserved_memory: 1"]),
        ({"max_pods": 251}, ["max_pods: 251", "250"]),
        ({"head_disruption_budget": "yes"}, ["head_disruption_budget"]),
        # Unknown keys.
        ({"node_selector": {}}, ["node_selector: unknown key", "cpu_nodes"]),
        ({"namespce": "x"}, ["namespce: unknown key", "did you mean namespace?"]),
        ({"cpu_nodes": {"nodeSelector": {}}}, ["cpu_nodes > nodeSelector: unknown key"]),
        ({"groups": {"head": {"idle": 1}}}, ["groups > head > idle: unknown key"]),
    ],
)
def test_settings_that_are_wrong_are_refused_with_their_key(settings, parts):
    with pytest.raises(UsageError) as caught:
        stack(**settings)
    for part in ["sunspot:kubernetes", *parts]:
        assert part in str(caught.value)


@pytest.mark.parametrize("value", ["512Mi", "1.5Gi", "1e9", "500m", "10G", "1"])
def test_quantities_of_kubernetes_are_taken(value):
    stack(shared_memory=value)


@pytest.mark.parametrize(
    "key", ["a", "A_b.c-d", "example.com/x", "kubernetes.azure.com/scalesetpriority"]
)
def test_labels_of_kubernetes_are_taken(key):
    stack(cpu_nodes={"node_selector": {key: ""}, "labels": {key: "A.b_c-1"}})
