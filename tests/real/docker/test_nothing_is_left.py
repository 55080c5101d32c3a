"""What the tests start is gone when they end: processes, mounts, control groups."""

from pathlib import Path

import psutil
import pytest
from ending import words_of
from machines import base_image
from machines.docker import engine
from machines.network import Network
from node_cluster import machine, worker_values

pytestmark = pytest.mark.timeout(900)


def mounts(*folders: Path) -> list[str]:
    """What is mounted in these folders: elsewhere another test's engine may mount meanwhile."""
    every = [line.split()[1] for line in Path("/proc/mounts").read_text().splitlines()]
    return [path for path in every if any(Path(path).is_relative_to(f) for f in folders)]


def processes_that_name(text: str) -> list[str]:
    found = []
    for process in psutil.process_iter(["cmdline"]):
        command = " ".join(process.info["cmdline"] or [])
        if text in command:
            found.append(command)
    return found


def test_of_an_engine(base: base_image.BaseImage, tmp_path: Path) -> None:
    with engine(tmp_path / "data") as docker:
        name = base_image.load(docker, base)
        container = docker("run", "--detach", "--network=none", name, "sleep", "1000").strip()
        assert docker.inspect(container)["State"]["Running"]
        folder = docker.socket.parent
        assert processes_that_name(str(folder))
        assert mounts(folder, tmp_path)
    assert not processes_that_name(str(folder))
    assert not processes_that_name(container)
    assert not folder.exists()
    assert not mounts(folder, tmp_path)


def test_of_a_node(lan: Network, folder: Path) -> None:
    values = worker_values(group="short", market="spot")
    with machine(lan, 7, values, folder) as made:
        root = made.node.root
        groups = f"sunspot-{made.node.pid}"
        started = made.node.processes()
        assert any("dockerd" in " ".join(words_of(process)) for process in started)
        made.docker("pull", "--quiet", values.image)
        command = ("run", "--detach", "--network=host", values.image, "sleep", "1000")
        made.docker(*command)
        assert list(Path("/sys/fs/cgroup").glob(f"*/{groups}"))
    assert not [process for process in started if process.is_running()]
    assert not root.exists()
    assert not list(Path("/sys/fs/cgroup").glob(f"*/{groups}"))
    assert not mounts(root)
