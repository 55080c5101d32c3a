"""The machine, its clusters, and the table of what was tried. `make faults` runs these tests."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from cut_off import Installed, Moments
from fault_clusters import STACKS, Clusters
from fault_table import ROWS, WRITE, Row
from own_machine import DISK_VARIABLE, Machine

MOMENTS = "--moments"

# A test of ten moments brings a cluster up up to ten times.
TIMEOUT_S = 900


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(WRITE, action="store_true", help="write the table of docs/reliability.md")
    parser.addoption(MOMENTS, type=int, default=10, help="at which each command is cut off")


def pytest_configure(config: pytest.Config) -> None:
    config.stash[ROWS] = []


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.timeout(TIMEOUT_S))


@pytest.fixture(scope="session")
def machine() -> Machine:
    if DISK_VARIABLE not in os.environ:
        pytest.skip("needs a machine of its own: make faults")
    return Machine(Path(os.environ[DISK_VARIABLE]))


@pytest.fixture(scope="session")
def sunspot(machine: Machine) -> Installed:
    """The command in a project with the stacks, all on the user's disk."""
    folders = {name: machine.disk / name for name in ("project", "state", "home")}
    for folder in folders.values():
        folder.mkdir()
    command = Installed(**folders)
    (command.project / "Pulumi.yaml").write_text("name: test\nruntime: python\n")
    for name, cluster in STACKS.items():
        command.write_stack(name, cluster)
    return command


@pytest.fixture(scope="session")
def clusters(sunspot: Installed, machine: Machine) -> Iterator[Clusters]:
    made = Clusters(sunspot, machine)
    yield made
    made.remove_all()


@pytest.fixture(scope="session")
def moments(request: pytest.FixtureRequest) -> Moments:
    return Moments(request.config.option.moments)


@pytest.fixture
def record(request: pytest.FixtureRequest) -> Callable[[Row], None]:
    """Called at the end of a test with what it has shown: a row of the table."""
    return request.config.stash[ROWS].append
