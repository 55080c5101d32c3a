"""What a cluster lets another user of this machine have is what docs/security.md says."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from ending import words_of
from harness import SMALL, Sunspot
from listening import Listening, files_below, listening, written_by
from sunspot_command import fresh
from waiting import wait_for

from sunspot.node.local.folder import ClusterFolder
from sunspot.ray.handle import ClusterHandle

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/security.md").read_text()

# A driver and a worker, which listen too, as long as the job runs.
BUSY = """
import ray, signal
ray.init()
class Waits:
    def wait(self): signal.pause()
actor = ray.remote(Waits).remote()
ray.get(actor.__ray_ready__.remote())
print("begun", flush=True)
ray.get(actor.wait.remote())
"""


# A driver that goes through Ray Client, as long as it may.
# On a busy machine, Ray's proxy may lose the process that it starts for a driver.
REMOTE = """
import ray, sys
for _ in range(3):
    try:
        ray.init(sys.argv[1])
        break
    except ConnectionError as error:
        print(error, file=sys.stderr)
print("begun", flush=True)
sys.stdin.read()
"""


def documented(heading: str = "## On this machine") -> set[tuple[str, ...]]:
    """The rows of a section's table, without its last column."""
    section = PAGE.split(f"\n{heading}\n")[1].split("\n#")[0]
    lines = [line for line in section.splitlines() if line.startswith("| ")][1:]
    cells = [[cell.strip().strip("`") for cell in line.strip("|").split("|")] for line in lines]
    return {tuple(row[:3]) for row in cells}


@pytest.fixture(scope="module")
def busy(
    sunspot: Sunspot, cluster: ClusterHandle, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[None]:
    """The shared cluster with a job on it, whose driver and actor are alive."""
    command = (sys.executable, "-c", BUSY)
    folder, name = tmp_path_factory.mktemp("busy"), fresh("busy")
    sunspot.ok("submit", "--detach", "--name", name, "--", *command, cwd=folder)
    client = sunspot.client("main")
    wait_for("the job's actor", lambda: "begun" in client.logs(name).splitlines())
    yield
    sunspot.ok("stop", name)


@pytest.fixture(scope="module")
def as_nobody() -> Callable[..., dict[str, Any]]:
    """Tries sockets and files as the user nobody."""
    if os.getuid() != 0:
        pytest.skip("only root can become another user, to try what that user may do")

    def ask(**asked: object) -> dict[str, Any]:
        done = subprocess.run(
            [sys.executable, str(Path(__file__).with_name("as_nobody.py"))],
            input=json.dumps({"tcp": [], "unix": [], "files": {}} | asked),
            capture_output=True,
            text=True,
            check=False,
            timeout=600,
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    return ask


def test_every_socket_answers_another_user_as_the_page_says(
    sunspot: Sunspot, busy: None, as_nobody: Callable[..., dict[str, Any]]
):
    assert sorted(answered(sunspot.folder("main"), as_nobody)) == sorted(documented())


def answered(
    folder: ClusterFolder, as_nobody: Callable[..., dict[str, Any]]
) -> set[tuple[str, str, str]]:
    """Each process that listens, where, and what it answers another user."""
    sockets = listening(folder.processes())
    tcp = sorted({(_host(one), one.port) for one in sockets if one.port is not None})
    unix = sorted({one.at for one in sockets if one.port is None})
    found = as_nobody(tcp=tcp, unix=unix)
    answers = {(host, port): answer for host, port, answer in found["tcp"]}
    answers |= {(name, None): answer for name, answer in found["unix"]}
    # An idle worker may have ended meanwhile.
    lasting = sockets & listening(folder.processes())
    return {(one.process, _where(one), answers[(_host(one), one.port)]) for one in lasting}


@pytest.fixture(scope="module")
def through_client(
    sunspot: Sunspot, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ClusterFolder]:
    """A cluster with a server for Ray Client, which a driver uses."""
    sunspot.write_stack("remote", {"head_node": SMALL})
    sunspot.ok("up", "remote", "--client")
    try:
        handle = sunspot.target.handle("remote")
        environment = sunspot.environment() | handle.environment()
        with subprocess.Popen(
            [sys.executable, "-c", REMOTE, str(handle.client_address)],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        ) as driver:
            try:
                assert driver.stdout is not None
                assert driver.stdout.readline() == "begun\n"
                yield sunspot.folder("remote")
            finally:
                driver.kill()
    finally:
        sunspot.ok("down", "remote")


def test_ray_client_answers_another_user_as_the_page_says(
    through_client: ClusterFolder, as_nobody: Callable[..., dict[str, Any]]
):
    found = answered(through_client, as_nobody)
    ours = {row for row in found if row[0] == "Ray Client"}
    assert sorted(ours) == sorted(documented("### With `up --client`"))
    assert found - ours <= documented()


def _host(one: Listening) -> str:
    return "127.0.0.1" if one.at in ("::", "0.0.0.0") else one.at  # noqa: S104 - compared


def _where(one: Listening) -> str:
    """Its address; for a UNIX socket, whether it is a file or only a name."""
    if one.port is not None:
        return one.at
    return "an abstract name" if one.at.startswith("@") else "a file"


def test_another_user_opens_no_file_of_a_cluster(
    sunspot: Sunspot, busy: None, as_nobody: Callable[..., dict[str, Any]]
):
    folders = (sunspot.state, sunspot.folder("main").temp_dir.parent)
    files = {str(folder): files_below(folder) for folder in folders}
    assert any(name.endswith("main/token") for name in files[str(sunspot.state)])
    assert any(name.endswith("raylet.out") for name in files[str(folders[1])])
    assert as_nobody(files=files)["files"] == {str(folder): [] for folder in folders}


def test_no_process_holds_a_file_outside_that_another_user_opens(
    sunspot: Sunspot, busy: None, as_nobody: Callable[..., dict[str, Any]]
):
    """What processes write into other folders: a log, an object store, a lock."""
    held = {
        str(path) for process in sunspot.folder("main").processes() for path in written_by(process)
    }
    names = sorted(path.removeprefix("/") for path in held)
    assert any("raylet.out" in name for name in names)
    assert as_nobody(files={"/": names})["files"] == {"/": []}


def test_no_command_line_of_a_cluster_has_the_token(sunspot: Sunspot, busy: None):
    """Every user of a machine may read the command lines of all processes."""
    token = sunspot.folder("main").token.read_text().strip()
    assert len(token) >= 32
    lines = [" ".join(words_of(process)) for process in sunspot.folder("main").processes()]
    assert any("raylet" in line for line in lines)
    assert not any(token in line for line in lines)
