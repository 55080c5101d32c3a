"""Manifests against KubeRay's own CRD, with unknown fields refused as kubectl does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator
from kubernetes_stacks import KINDS, cluster, documents, group

from sunspot import stack as stacks
from sunspot.targets.kubernetes import raycluster

ROOT = Path(__file__).resolve().parents[3]
CRD = ROOT.parent / "shared" / "kuberay" / "ray.io_rayclusters.yaml"

pytestmark = pytest.mark.skipif(not CRD.is_file(), reason="KubeRay's CRDs are not beside the code")


def strict(schema: Any) -> Any:
    """The schema with unknown fields refused, as the API server's strict field validation does."""
    if isinstance(schema, list):
        return [strict(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    made = {key: strict(value) for key, value in schema.items()}
    open_ended = "x-kubernetes-preserve-unknown-fields" in schema
    if isinstance(schema.get("properties"), dict) and not open_ended:
        made.setdefault("additionalProperties", False)
    return made


@pytest.fixture(scope="module")
def validator():
    versions = yaml.load(CRD.read_text(), Loader=yaml.CSafeLoader)["spec"]["versions"]
    schema = next(one for one in versions if one["name"] == "v1")["schema"]["openAPIV3Schema"]
    return Draft202012Validator(strict(schema))


def problems(validator, made):
    return [f"{one.json_path}: {one.message}" for one in validator.iter_errors(made)]


@pytest.mark.parametrize("described", KINDS.values(), ids=KINDS)
def test_a_manifest_is_valid(validator, described):
    assert problems(validator, documents(described)[0]) == []


@pytest.mark.parametrize("described", KINDS.values(), ids=KINDS)
def test_what_a_ray_service_or_a_ray_job_makes_its_cluster_from_is_valid(validator, described):
    """There the volume of the GCS's state is KubeRay's own, which only 1.7 has."""
    made = documents(described)[0] | {"spec": raycluster.inner_spec(described)}
    assert problems(validator, made) == []


@pytest.mark.parametrize("name", stacks.names(ROOT))
def test_the_manifest_of_every_stack_of_the_project_is_valid(validator, name):
    made = documents(stacks.load(name, ROOT).for_target("kubernetes"))
    assert problems(validator, made[0]) == []


def test_the_schema_would_find_a_slip(validator):
    """The check itself: each of these is a mistake that the API server refuses."""
    made = cluster(group())
    made["spec"]["headGroupSpec"]["rayStartParams"]["num-cpus"] = 2
    made["spec"]["workerGroupSpecs"][0]["replicsa"] = 1
    made["spec"]["authOptions"]["mode"] = "on"
    made["spec"]["headGroupSpec"]["template"]["spec"]["containers"][0]["resources"]["limits"][
        "memory"
    ] = "1 GB"
    assert len(problems(validator, made)) == 4
