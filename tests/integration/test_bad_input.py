"""Mistakes of a user that need no cluster: one message that says what and where, exit code 2."""

from __future__ import annotations

import copy
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from harness import SMALL, Sunspot

GROUP = {"name": "workers", "min_workers": 1, "max_workers": 1, "worker_nodes": SMALL}
GOOD = {"head_node": SMALL, "scaling_groups": [GROUP]}


@pytest.fixture
def sandbox(tmp_path: Path) -> Iterator[Sunspot]:
    """The command with a state folder in which nothing is up, and the stack alpha."""
    command = Sunspot(project=tmp_path / "project", state=tmp_path / "s", home=tmp_path / "home")
    command.project.mkdir()
    command.home.mkdir()
    (command.project / "Pulumi.yaml").write_text("name: test\nruntime: python\n")
    command.write_stack("alpha", GOOD)
    yield command
    for name in command.target.names():  # something came up after all
        command("down", name)


@pytest.fixture
def taken_port() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def assert_nothing_was_made(sunspot: Sunspot, name: str = "alpha") -> None:
    folder = sunspot.folder(name)
    assert not folder.path.exists()
    assert not folder.temp_dir.exists()
    assert folder.processes() == []


def unknown_key(cluster: dict) -> None:
    cluster["scaling_groups"][0]["min_worker"] = 1


def wrong_type(cluster: dict) -> None:
    cluster["head_node"]["cpu"] = "four"


def max_below_min(cluster: dict) -> None:
    cluster["scaling_groups"][0] |= {"min_workers": 3, "max_workers": 2}


@pytest.mark.parametrize(
    ("spoil", "path", "words"),
    [
        (unknown_key, "scaling_groups[0] > min_worker", "did you mean min_workers"),
        (wrong_type, "head_node > cpu", '"four"'),
        (max_below_min, "scaling_groups[0] > max_workers", "min_workers 3"),
    ],
)
def test_a_wrong_stack_file_is_refused_by_file_and_key(
    sandbox: Sunspot, spoil: Callable[[dict], None], path: str, words: str
):
    cluster = copy.deepcopy(GOOD)
    spoil(cluster)
    file = sandbox.write_stack("wrong", cluster)
    done = sandbox("up", "wrong")
    assert done.returncode == 2
    assert str(file) in done.stderr
    assert f"config > sunspot:cluster > {path}: " in done.stderr
    assert words in done.stderr
    assert_nothing_was_made(sandbox, "wrong")


@pytest.mark.parametrize("flag", ["--dashboard-port", "--port"])
def test_a_taken_port_is_refused_by_number_and_flag(sandbox: Sunspot, taken_port: int, flag: str):
    done = sandbox("up", "alpha", flag, str(taken_port))
    assert done.returncode == 2
    assert f"port {taken_port} is taken" in done.stderr
    assert f"give {flag} another" in done.stderr
    assert_nothing_was_made(sandbox)


@pytest.mark.parametrize("port", ["70000", "-1", "0", "http"])
def test_a_number_that_is_no_port_is_refused(sandbox: Sunspot, port: str):
    done = sandbox("up", "alpha", "--port", port)
    assert done.returncode == 2
    assert_nothing_was_made(sandbox)


@pytest.mark.parametrize(
    "command",
    [["jobs"], ["submit", "--", "true"], ["logs", "x"], ["stop", "x"], ["dashboard"]],
    ids=" ".join,
)
def test_commands_that_need_a_cluster_say_how_to_start_one(sandbox: Sunspot, command: list[str]):
    done = sandbox(*command)
    assert done.returncode == 1
    assert "no cluster is up" in done.stderr
    assert "sunspot up" in done.stderr


def test_a_state_directory_that_cannot_be_written_is_refused(tmp_path: Path, sandbox: Sunspot):
    (tmp_path / "file").touch()
    broken = Sunspot(project=sandbox.project, state=tmp_path / "file" / "state", home=sandbox.home)
    done = broken("up", "alpha")
    assert done.returncode == 2
    assert str(broken.state) in done.stderr
    assert "SUNSPOT_STATE_DIR" in done.stderr


@pytest.fixture
def full_disk(tmp_path: Path) -> Iterator[Path]:
    """A folder on a file system that has no room left."""
    mount, umount = shutil.which("mount"), shutil.which("umount")
    if sys.platform != "linux" or os.getuid() != 0 or not mount or not umount:
        pytest.skip("a full disk is made with a small tmpfs, which needs root on Linux")
    disk = tmp_path / "disk"
    disk.mkdir()
    made = subprocess.run(
        [mount, "-t", "tmpfs", "-o", "size=16k,mode=700", "tmpfs", disk],
        capture_output=True,
        text=True,
        check=False,
    )
    if made.returncode != 0:
        pytest.skip(f"this machine lets nobody mount a tmpfs: {made.stderr.strip()}")
    try:
        with (disk / "ballast").open("wb", buffering=0) as file:
            while fits(file.fileno()):
                pass
        yield disk
    finally:
        subprocess.run([umount, disk], check=True)


def fits(descriptor: int) -> bool:
    try:
        return os.write(descriptor, bytes(1024)) > 0
    except OSError:
        return False


def test_a_full_disk_is_refused_and_nothing_is_left(full_disk: Path, sandbox: Sunspot):
    full = Sunspot(project=sandbox.project, state=full_disk / "state", home=sandbox.home)
    done = full("up", "alpha")
    assert done.returncode == 2
    assert "is full" in done.stderr
    assert str(full.state) in done.stderr
    assert_nothing_was_made(full)
    assert "is not up" in full.ok("down", "alpha")
