"""Which images are on Docker Hub, and the names of their copies."""

import pytest
import yaml

from sunspot.errors import UsageError
from sunspot.targets.azure import images

DIGEST = "0123456789ab" + "c" * 52


@pytest.mark.parametrize(
    ("reference", "source", "name"),
    [
        ("rayproject/ray:2.60.0", "docker.io/rayproject/ray:2.60.0", "rayproject/ray:2.60.0"),
        ("docker.io/me/ray:1", "docker.io/me/ray:1", "me/ray:1"),
        ("index.docker.io/me/ray:1", "docker.io/me/ray:1", "me/ray:1"),
        ("ubuntu", "docker.io/library/ubuntu:latest", "library/ubuntu:latest"),
        ("docker.io/ubuntu:24.04", "docker.io/library/ubuntu:24.04", "library/ubuntu:24.04"),
        (
            f"me/ray:1@sha256:{DIGEST}",
            f"docker.io/me/ray@sha256:{DIGEST}",
            "me/ray:1-0123456789ab",
        ),
        (f"me/ray@sha256:{DIGEST}", f"docker.io/me/ray@sha256:{DIGEST}", "me/ray:0123456789ab"),
    ],
)
def test_images_of_docker_hub(reference, source, name):
    assert images.copy_of(reference) == images.Copy(source=source, name=name)
    assert images.pulled(reference, images.copies_of([reference]), "r.test") == f"r.test/{name}"


@pytest.mark.parametrize(
    "reference",
    ["ghcr.io/me/ray:1", "localhost/ray", "localhost:5000/ray", "registry.test/me/Ray:1"],
)
def test_images_of_other_registries(reference):
    assert images.copy_of(reference) is None
    assert images.pulled(reference, images.copies_of([reference]), "r.test") == reference


@pytest.mark.parametrize(
    "reference", ["Me/ray:1", "me/ray:", "me//ray", "me/ray@sha256:12", "me/ray:1;x", "me/ray:$x"]
)
def test_what_no_image_on_docker_hub_is_called(reference):
    with pytest.raises(UsageError) as refused:
        images.copy_of(reference)
    assert repr(reference) in str(refused.value)


def test_a_tag_stays_within_its_length():
    copy = images.copy_of(f"me/ray:{'t' * 128}@sha256:{DIGEST}")
    assert copy is not None
    assert len(copy.name.partition(":")[2]) <= 128


def test_each_image_is_copied_once():
    found = images.copies_of(["me/ray:1", "docker.io/me/ray:1", "ghcr.io/me/ray:1", "me/ray:2"])
    assert [copy.name for copy in found] == ["me/ray:1", "me/ray:2"]
    steps = yaml.safe_load(images.task(found))["steps"]
    assert len([step for step in steps if "docker pull" in step.get("cmd", "")]) == 2


@pytest.mark.parametrize(
    "reference",
    [
        None,
        "rayproject/ray",
        "rayproject/ray:2.60.0-py311-gpu",
        "rayproject/ray:2.6x",
        "me/ray:2.9.0",
    ],
)
def test_an_image_that_has_the_stacks_ray_or_does_not_say(reference):
    images.check_ray(reference, "v2.60.0")


@pytest.mark.parametrize("name", ["rayproject/ray", "docker.io/rayproject/ray-ml"])
def test_an_image_of_another_ray(name):
    with pytest.raises(UsageError, match=r"2\.9\.0.*2\.60\.0"):
        images.check_ray(f"{name}:2.9.0-py311", "2.60.0")
