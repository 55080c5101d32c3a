"""The image of the nodes, built on the host from a folder of the project."""

from collections.abc import Iterator
from typing import Any

import compose_site
import pytest
from compose_engine import Behind
from sites import Site

from sunspot.targets.compose import plan

NAME = "build"
PROJECT = plan.project(NAME)
IMAGE = f"{PROJECT}-ray"
ALONE = {"monitoring": False, "storage": False, "jupyter": False}


@pytest.fixture(scope="module")
def up(site: Site, behind: Behind, images: dict[str, str]) -> Iterator[list[dict[str, Any]]]:
    """What the engine knows of the containers of a cluster whose image is built."""
    context = site.project / "image"
    context.mkdir()
    (context / "Dockerfile").write_text(f"FROM {images['ray']}\nLABEL built=here\n")
    settings = {"sunspot:image": {"context": context.name}, "sunspot:compose": ALONE}
    with compose_site.up(site, NAME, compose_site.cluster("workers"), settings):
        label = f"label=com.docker.compose.project={PROJECT}"
        ids = behind.docker("ps", "--all", "--quiet", "--filter", label).split()
        yield [behind.docker.inspect(one) for one in ids]
    behind.docker("image", "rm", IMAGE)


def test_every_node_has_the_image_that_was_built(up: list[dict[str, Any]]) -> None:
    config = [one["Config"] for one in up]
    services = {one["Labels"]["com.docker.compose.service"] for one in config}
    assert services == {"prepare", "head", "workers-1"}
    assert {one["Image"] for one in config} == {IMAGE}
    assert {one["Labels"]["built"] for one in config} == {"here"}
