"""One project, one home and one cluster for all integration tests."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness import SMALL, Sunspot, marked_processes
from sunspot_command import clean_environment

from sunspot.ray.handle import ClusterHandle

CLUSTER = "main"

# Every shape is unlike the others, so that a test can tell where something ran.
MAIN = {
    "head_node": {"cpu": 2, "memory_gb": 2},
    "scaling_groups": [
        {
            "name": "fixed",
            "market": "spot",
            "min_workers": 1,
            "max_workers": 1,
            "worker_nodes": {"cpu": 1, "memory_gb": 2.5, "gpu_count": 1},
        },
        {
            "name": "elastic",
            "market": "on-demand",
            "min_workers": 0,
            "max_workers": 1,
            "worker_nodes": {"cpu": 3, "memory_gb": 3},
        },
    ],
    "autoscaler_config": {"cpu": 0.5, "memory_gb": 1},
}
PAIR = {
    "head_node": SMALL,
    "scaling_groups": [{"name": "fixed", "market": "spot", "worker_nodes": SMALL}],
}
SOLO = {"head_node": SMALL}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.integration)
            # The closest mark counts, which would be this one.
            if item.get_closest_marker("timeout") is None:
                item.add_marker(pytest.mark.timeout(900))


@pytest.fixture(scope="session")
def sunspot(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sunspot]:
    """The command in a project with the stacks main, pair and solo; at the end nothing is left."""
    root = tmp_path_factory.mktemp("sunspot")
    command = Sunspot(project=root / "project", state=root / "state", home=root / "home")
    command.project.mkdir()
    command.home.mkdir()
    (command.project / "Pulumi.yaml").write_text("name: test\nruntime: python\n")
    command.write_stack(CLUSTER, MAIN)
    command.write_stack("pair", PAIR)
    command.write_stack("solo", SOLO)
    yield command
    left = command.target.names()
    for name in left:
        command("down", name)
    assert left == [], "tests left clusters up"
    assert marked_processes(command.state) == []
    assert not (command.home / ".ray").exists(), "something wrote to ~/.ray"


@pytest.fixture(scope="session")
def up_output(sunspot: Sunspot) -> Iterator[str]:
    """What `sunspot up main` printed; the cluster is up until the last test has ended."""
    yield sunspot.ok("up", CLUSTER)
    sunspot.ok("down", CLUSTER)


@pytest.fixture(scope="session")
def cluster(sunspot: Sunspot, up_output: str) -> ClusterHandle:
    """The cluster that most tests share."""
    return sunspot.target.handle(CLUSTER)


@pytest.fixture(scope="class")
def in_the_home(sunspot: Sunspot) -> Iterator[Sunspot]:
    """This process with the environment that the command gets, for the Python API."""
    with pytest.MonkeyPatch.context() as patch:
        wanted = clean_environment(sunspot.state, sunspot.home)
        for name in os.environ.keys() - wanted.keys():
            patch.delenv(name)
        for name, value in wanted.items():
            patch.setenv(name, value)
        yield sunspot
