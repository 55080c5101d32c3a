"""One cluster for all tests of the training workloads: a head and two worker nodes."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness import Sunspot, marked_processes
from training import CLUSTER, Training

# What CI sets: nothing is skipped, and a test without torch fails.
NEEDED = "SUNSPOT_TESTS_NEED_TRAIN"
ROOT = Path(__file__).resolve().parents[2]

# Two CPUs a node: a worker that asks for two has one to itself, two that ask for one share it.
NODE = {"cpu": 2, "memory_gb": 3}
STACK = {
    "head_node": {"cpu": 1, "memory_gb": 2},
    "scaling_groups": [
        {
            "name": "pair",
            "market": "spot",
            "min_workers": 2,
            "max_workers": 2,
            "worker_nodes": NODE | {"gpu_count": 1},
        }
    ],
}


ENDED = pytest.StashKey[int]()


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    session.config.stash[ENDED] = exitstatus


@pytest.hookimpl(trylast=True)
def pytest_unconfigure(config: pytest.Config) -> None:
    """Ends the process by itself: torch, pyarrow and a Ray that was left several times are in it.

    Once, after all tests had passed, they crashed in their destructors (SIGSEGV).
    """
    if "torch" in sys.modules and ENDED in config.stash:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(config.stash[ENDED])


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    absent = [name for name in ("torch", "lightning") if importlib.util.find_spec(name) is None]
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.integration)
            item.add_marker(pytest.mark.timeout(900))
            if absent and not os.environ.get(NEEDED):
                item.add_marker(pytest.mark.skip(f"no {absent[0]} here: make setup-train"))


@pytest.fixture(scope="session")
def sunspot(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sunspot]:
    root = tmp_path_factory.mktemp("train")
    command = Sunspot(project=root / "project", state=root / "state", home=root / "home")
    command.project.mkdir()
    command.home.mkdir()
    (command.project / "Pulumi.yaml").write_text("name: test\nruntime: python\n")
    command.write_stack(CLUSTER, STACK)
    yield command
    for name in command.target.names():
        command("down", name)
    assert marked_processes(command.state) == []


@pytest.fixture
def training(sunspot: Sunspot, tmp_path: Path) -> Training:
    """The cluster, whole again if a test before this one took a node, and an empty storage."""
    found = Training(sunspot=sunspot, folder=tmp_path)
    found.make_whole()
    return found
