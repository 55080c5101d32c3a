"""Programs as people bring them (in brought/), and the cluster that they run on, unchanged."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from harness import Sunspot, marked_processes

from sunspot.node.free_ports import port_is_free
from sunspot.ray import ports
from sunspot.ray.handle import ClusterHandle

BROUGHT = Path(__file__).parent / "brought"

# A file with only a cluster, in a folder that is no project.
CLUSTER = """
head_node: {cpu: 2, memory_gb: 2}
scaling_groups:
  - name: gpu
    min_workers: 1
    max_workers: 1
    worker_nodes: {cpu: 1, memory_gb: 2, gpu_count: 1}
"""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.integration)
            item.add_marker(pytest.mark.timeout(900))


@pytest.fixture(scope="session")
def sunspot(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sunspot]:
    """The command in a folder that is no project; at the end nothing is left."""
    root = tmp_path_factory.mktemp("programs")
    command = Sunspot(project=root / "folder", state=root / "state", home=root / "home")
    command.project.mkdir()
    command.home.mkdir()
    (command.project / "programs.yaml").write_text(CLUSTER)
    yield command
    for name in command.target.names():
        command("down", name)
    assert marked_processes(command.state) == []


@pytest.fixture(scope="session")
def gcs_port_was_free() -> bool:
    """Whether 6379 was free before the cluster came up.

    Of the dashboard's port that says little: tunnels of tests that run beside these take it too.
    """
    return port_is_free(ports.get("gcs").number)


@pytest.fixture(scope="session")
def up_output(sunspot: Sunspot, gcs_port_was_free: bool) -> Iterator[str]:
    """What `up` printed; the cluster is up until the last test has ended."""
    yield sunspot.ok("up", "--file", "programs.yaml", "--client")
    sunspot.ok("down", "programs")


@pytest.fixture(scope="session")
def cluster(sunspot: Sunspot, up_output: str) -> ClusterHandle:
    return sunspot.target.handle("programs")


@pytest.fixture(scope="session")
def brought(
    tmp_path_factory: pytest.TempPathFactory, cluster: ClusterHandle
) -> Callable[[str], Path]:
    """Copies a program into a folder of its own.

    Where another cluster of this machine has port 6379, the program gets this cluster's port in its
    place: the rest of it stays as it was brought.
    """
    port = cluster.head_address.rpartition(":")[2]

    def copy(name: str) -> Path:
        text = (BROUGHT / name).read_text().replace(":6379", f":{port}")
        program = tmp_path_factory.mktemp("brought") / name
        program.write_text(text)
        return program

    return copy


@pytest.fixture(scope="session")
def drivers_variables(sunspot: Sunspot, up_output: str) -> dict[str, str]:
    """The environment of a driver here, with the lines that `up` printed."""
    lines = [line.strip() for line in up_output.splitlines()]
    exports = [line.removeprefix("export ") for line in lines if line.startswith("export ")]
    printed = dict(shlex.split(line)[0].split("=", 1) for line in exports)
    return sunspot.environment() | printed | {"RAY_USAGE_STATS_ENABLED": "0"}
