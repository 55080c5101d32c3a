"""JupyterLab on a head in a container: it is installed there, and a notebook runs."""

import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import requests
from machines.docker import Docker
from machines.dockerfiles import CERTIFICATES, IN_CONTAINER
from machines.processes import StepError
from ssh_server import needs_sshd, prepared, running
from waiting import wait_for

from sunspot.node.free_ports import free_port
from sunspot.targets import head_notebook
from sunspot.targets.azure.head import PYTHON_OF_RAY
from sunspot.targets.ssh import Ssh

pytestmark = [pytest.mark.timeout(900), needs_sshd]

CONTAINER = PYTHON_OF_RAY[-2]
NOTEBOOK = Path(__file__).parents[2] / "programs" / "brought" / "counts_nodes.ipynb"
JOIN_S = 600.0
# As ray.sh starts it: a token, the host's network, Ray's folder, which the image's user owns.
# Again if it fails, as systemd does it.
START = (
    "umask 077; head -c 32 /dev/urandom | base64 > $RAY_AUTH_TOKEN_PATH; "
    "until ray start $FLAGS; do sleep 1; done"
)
JUPYTERS_PYTHON = "ls -d $HOME/.cache/sunspot/jupyterlab-*/bin/python"
EXECUTE = """
import sys
import nbformat
from nbclient import NotebookClient

notebook = nbformat.read(sys.stdin, as_version=4)
NotebookClient(notebook, timeout=300, startup_timeout=300, kernel_name="python3").execute()
for cell in notebook.cells:
    for output in cell.get("outputs", ()):
        print(output.get("text", ""), end="")
"""


@pytest.fixture(scope="module")
def head(builder: Docker, base_name: str, pip_settings: Path, tmp_path_factory) -> Iterator[Docker]:
    """A head of Ray in a container, whose pip reaches the package index as this machine's does."""
    # The host's network is also that of other heads, which may have the ports that Ray would take.
    gcs = free_port(set())
    flags = f"--head --block --port={gcs} --ray-client-server-port={free_port({gcs})}"
    flags += " --num-cpus=2 --include-dashboard=false --disable-usage-stats"
    pip_settings.chmod(0o644)
    pip_settings.parent.chmod(0o755)
    builder(
        *("run", "--detach", "--name", CONTAINER, "--network=host", "--init", "--shm-size=512m"),
        *("--env=RAY_AUTH_MODE=token", "--env=RAY_AUTH_TOKEN_PATH=/tmp/token"),
        *("--env", f"FLAGS={flags}", "--env=PIP_CONFIG_FILE=/run/pip.conf"),
        *("--volume", f"{pip_settings}:/run/pip.conf:ro"),
        *([f"--volume={CERTIFICATES}:{IN_CONTAINER}:ro"] if CERTIFICATES.exists() else []),
        *("--entrypoint=sh", base_name, "-c", START),
    )
    try:
        ready = ("exec", CONTAINER, "ray", "status")
        wait_for(
            "Ray on the head",
            lambda: builder.run(*ready).returncode == 0,
            JOIN_S,
            seen=lambda: builder.run("logs", CONTAINER).stdout[-3000:],
        )
        yield builder
    finally:
        builder.run("rm", "--force", CONTAINER)


@pytest.fixture(scope="module")
def way(head: Docker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ssh]:
    """SSH to the machine of the head, whose `docker` is the engine's client."""
    folder = tmp_path_factory.mktemp("sshd")
    server = prepared(folder)
    client = shlex.quote(str(shutil.which("docker")))
    server.stub("docker", f'DOCKER_HOST=unix://{head.socket} exec {client} "$@"')
    with running(server):
        yield Ssh.parse(server.command, key=server.key, known_hosts=folder / "known_hosts")


def test_a_notebook_runs_on_the_head(head: Docker, way: Ssh) -> None:
    steps: list[str] = []
    with head_notebook.through(way, "real", PYTHON_OF_RAY, (), steps.append) as found:
        address, _, token = found.url.partition("/lab?token=")
        kernels = f"{address}/api/kernels"
        assert requests.get(kernels, timeout=60).status_code == 403
        known = {"Authorization": f"token {token}"}
        assert requests.get(kernels, headers=known, timeout=60).json() == []
        # A notebook of JupyterLab's own environment, where `ray.init()` finds the cluster.
        python = head("exec", CONTAINER, "sh", "-c", JUPYTERS_PYTHON).strip()
        named = ("exec", "--interactive", CONTAINER, python, "-c", EXECUTE)
        try:
            printed = head(*named, stdin=NOTEBOOK.read_text())
        except StepError as error:
            logs = head.run("logs", CONTAINER)
            error.add_note(logs.stdout[-3000:] + logs.stderr[-3000:])
            raise
        assert "1 nodes" in printed
        assert "[0, 1, 4, 9]" in printed
    assert any("installing" in step for step in steps)
    assert "jupyterlab" not in head("exec", CONTAINER, "ps", "-e", "-o", "args")


def test_the_second_time_nothing_is_installed(way: Ssh) -> None:
    steps: list[str] = []
    with head_notebook.through(way, "real", PYTHON_OF_RAY, (), steps.append) as found:
        assert found.is_open()
    assert not any("installing" in step for step in steps)
