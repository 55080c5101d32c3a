"""RayServices: a stack's cluster with what Ray Serve serves on it."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from kubernetes_stacks import cluster, group, groups, stack

from sunspot.errors import UsageError
from sunspot.targets.kubernetes import manifest
from sunspot.targets.kubernetes.target import create

APP = {"name": "food", "import_path": "main:app", "route_prefix": "/"}


@pytest.fixture
def config(tmp_path):
    """A file of Serve's with these keys beside its application."""

    def made(app=None, **keys):
        file: Path = tmp_path / "serve.yaml"
        file.write_text(yaml.safe_dump({"applications": [APP | (app or {})]} | keys))
        return str(file)

    return made


def service(described, source):
    (made,) = yaml.safe_load_all(manifest.served_text(described, source))
    return made


def served(made):
    return yaml.safe_load(made["spec"]["serveConfigV2"])


def refused(described, source):
    with pytest.raises(UsageError) as error:
        manifest.served_text(described, source)
    return str(error.value)


ELASTIC = group("spot", minimum=0, maximum=3, market="spot")


def test_its_cluster_is_the_stacks_own(config):
    made = service(stack(ELASTIC, namespace="ml"), config())
    assert (made["apiVersion"], made["kind"]) == ("ray.io/v1", "RayService")
    assert (made["metadata"]["name"], made["metadata"]["namespace"]) == ("course", "ml")
    # By rayservice_types.go of KubeRay 1.6, these two make a service; others are optional.
    assert set(made["spec"]) == {"serveConfigV2", "rayClusterConfig"}
    assert made["spec"]["rayClusterConfig"] == cluster(ELASTIC, namespace="ml")["spec"]
    assert list(groups({"spec": made["spec"]["rayClusterConfig"]})) == ["spot"]


def test_its_applications_are_the_configs_with_an_ingress_that_the_service_reaches(config):
    told = served(service(stack(), config(deployments=[{"name": "Food", "num_replicas": 2}])))
    assert told["applications"] == [APP]
    assert told["deployments"] == [{"name": "Food", "num_replicas": 2}]
    assert told["http_options"] == {"host": "0.0.0.0", "port": 8000}  # noqa: S104
    assert told["proxy_location"] == "EveryNode"


def test_an_application_in_the_image_needs_no_file():
    told = served(service(stack(), "main:app"))
    assert told["applications"] == [{"name": "default", "import_path": "main:app"}]


@pytest.mark.parametrize(
    "env",
    [
        {"working_dir": "https://example.com/food.zip"},
        {"working_dir": "file:///app/food.zip"},
        {"py_modules": ["s3://bucket/food.zip"]},
        {"pip": ["emoji"], "env_vars": {"A": "b"}},
    ],
)
def test_what_the_cluster_can_get_by_itself_stays(config, env):
    assert (
        served(service(stack(), config({"runtime_env": env})))["applications"][0]["runtime_env"]
        == env
    )


@pytest.mark.parametrize(
    ("app", "keys", "told"),
    [
        (
            {"runtime_env": {"working_dir": "."}},
            {},
            "applications > food > runtime_env > working_dir: '.' is a folder of this machine",
        ),
        ({"runtime_env": {"py_modules": ["lib"]}}, {}, "runtime_env > py_modules: 'lib'"),
        ({"runtime_env": {"py_modules": "lib"}}, {}, "py_modules: 'lib' is not a list"),
        ({"runtime_env": {"working_dir": 5}}, {}, "runtime_env > working_dir: 5"),
        ({"runtime_env": "food"}, {}, "runtime_env: 'food' is not a mapping"),
        (
            {
                "deployments": [
                    {"name": "D", "ray_actor_options": {"runtime_env": {"working_dir": "x"}}}
                ]
            },
            {},
            "applications > food > D > runtime_env > working_dir: 'x'",
        ),
        ({"import_path": None}, {}, "applications > food > import_path: missing"),
        ({}, {"http_options": {"port": 9000}}, "port: 9000 is not 8000"),
        ({}, {"http_options": {"host": "0.0.0.0", "port": 9000}}, "port: 9000 is not 8000"),  # noqa: S104
        ({}, {"http_options": {"host": "127.0.0.1"}}, "looks for the ingress: leave it out"),
        ({}, {"applications": []}, "applications: empty"),
        ({}, {"proxy_location": "HeadOnly"}, "KubeRay takes for not ready"),
    ],
)
def test_a_config_that_cannot_work_there_is_refused(config, app, keys, told):
    assert told in refused(stack(), config(app, **keys))


def test_several_problems_are_told_at_once(config):
    text = refused(
        stack(), config({"runtime_env": {"working_dir": "x"}}, proxy_location="Disabled")
    )
    assert "working_dir: 'x'" in text
    assert "proxy_location: 'Disabled'" in text


def test_its_name_leaves_room_for_its_clusters(config):
    assert service(stack(name="a" * 47), config())["metadata"]["name"] == "a" * 47
    text = refused(stack(name="a" * 48), config())
    assert "has 48 characters, the name of a RayService or RayJob has at most 47" in text


def test_two_clusters_cannot_share_a_volume(config):
    text = refused(stack(gcs_fault_tolerance={"claim": "gcs"}), config())
    assert "gcs_fault_tolerance > claim: 'gcs' is one volume" in text


def test_a_wrong_stack_is_refused_as_without_serve(config):
    assert "'Course' is not a RayCluster's name" in refused(stack(called="Course"), config())


def test_the_header_has_the_commands():
    text = manifest.served_text(stack(namespace="ml"), "main:app")
    head = text.partition("---\n")[0]
    named = "course --file FILE"  # the project has no file of that name
    assert f"sunspot manifest {named} --target kubernetes --namespace ml --serve main:app |" in head
    assert "kubectl port-forward --namespace ml service/course-serve-svc 8000" in head
    assert "ask for no token" in head


def test_the_target_prints_it():
    text = create().served_manifest(stack(), "main:app")
    assert text == manifest.served_text(stack(), "main:app")
