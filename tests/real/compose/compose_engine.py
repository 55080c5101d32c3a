"""A Docker engine in a network of its own, with the Compose plugin, for clusters of one host.

Its containers get addresses on its own bridge, and its published ports are on the loopback address
of its own network: nothing of it is seen from this machine's network, nor changed there.
"""

import contextlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
from machines import PROJECT
from machines.docker import Docker, in_cpu_group
from machines.kept import locked, unmounted
from machines.needs import ENGINE_PROGRAMS, NEED_DOCKER, SYSTEM_PATH, need
from machines.network import Network
from machines.node import may_open
from machines.processes import DEADLINE_S, environment, server, stop
from waiting import wait_for

BUILT = Path(os.environ.get("SUNSPOT_COMPOSE_DIR", PROJECT / ".cache" / "compose"))
PLUGIN, S3_SERVER = BUILT / "bin" / "docker-compose", BUILT / "bin" / "versitygw"
GRAFANA_SOURCE = BUILT / "grafana"

# For machines whose root may not raise limits.
WITHIN_LIMITS = Path(__file__).parents[1] / "machines" / "runc_within_limits.py"

# What the nodes' containers ask for.
_OPEN_FILES = 65536

# A view of /dev that may be written to, for devices that this machine does not have.
_DEVICES = """
set -eu
mount -t tmpfs tmpfs "$1"
mkdir "$1/upper" "$1/work"
mount -t overlay -o "lowerdir=/dev,upperdir=$1/upper,workdir=$1/work" overlay /dev
exec sleep infinity
"""


def need_compose() -> None:
    """Skips the test where the engine, the plugin or the S3 server is missing."""
    need({**ENGINE_PROGRAMS, "prometheus": "prometheus"}, NEED_DOCKER)
    need_built(PLUGIN, S3_SERVER)


def need_built(*paths: Path) -> None:
    """Skips the test where a program or folder of scripts/compose/build.sh is missing."""
    missing = [str(path) for path in paths if not path.exists()]
    if missing:
        reason = f"needs {', '.join(missing)}: run scripts/compose/build.sh"
        pytest.fail(reason) if os.environ.get(NEED_DOCKER) else pytest.skip(reason)


@dataclass(frozen=True)
class Behind:
    """The engine, and a process in its network."""

    docker: Docker
    pid: int

    @property
    def enter(self) -> tuple[str, ...]:
        """What a command line begins with to be in the engine's network, with its view of /dev."""
        spaces = f"--net=/proc/{self.pid}/ns/net --mount=/proc/{self.pid}/ns/mnt"
        # A change of mounts would otherwise lead to the root folder.
        return ("sh", "-c", f'exec nsenter {spaces} --wdns="$PWD" "$@"', "sh")

    def run(self, *command: str) -> subprocess.CompletedProcess[str]:
        """A command in the engine's network and with its view of /dev."""
        entered = [*self.enter, *command]
        return subprocess.run(
            entered, env=environment(), capture_output=True, text=True, check=False
        )

    def variables(self, home: Path) -> dict[str, str]:
        """For commands that use the engine: its address, and a home that has the plugin."""
        plugins = home / ".docker" / "cli-plugins"
        plugins.mkdir(parents=True, exist_ok=True)
        if not (plugins / "docker-compose").exists():
            (plugins / "docker-compose").symlink_to(PLUGIN)
        return {"DOCKER_HOST": f"unix://{self.docker.socket}", "PATH": SYSTEM_PATH}


@contextlib.contextmanager
def engine_behind(
    lan: Network,
    number: int,
    data_root: Path,
    *,
    marks: Mapping[str, str] | None = None,
    runtime: Path | None = None,
    path: str = SYSTEM_PATH,
) -> Iterator[Behind]:
    """An engine in a network of its own.

    Args:
        lan: a network that it also has an address in.
        number: that address.
        data_root: its images and volumes; used by one engine at a time.
        marks: variables of the engine and of all that it starts, besides containers.
        runtime: an OCI runtime for all containers, instead of runc.
        path: the PATH of the engine.
    """
    data_root.mkdir(parents=True, exist_ok=True)
    with locked(data_root), _network_of_its_own(lan, number) as pid:
        # A socket's path must be short.
        folder = Path(tempfile.mkdtemp(prefix="compose-"))
        docker = Docker(folder / "docker.sock", folder / "dockerd.log")
        (folder / "daemon.json").write_text("{}")
        command = [
            *("nsenter", f"--net=/proc/{pid}/ns/net", f"--mount=/proc/{pid}/ns/mnt"),
            "dockerd",
            *("--data-root", data_root, "--exec-root", folder / "exec"),
            *("--host", f"unix://{docker.socket}", "--pidfile", folder / "dockerd.pid"),
            in_cpu_group(),
            *("--config-file", folder / "daemon.json", "--shutdown-timeout=20"),
            *_runtime(folder, runtime),
        ]
        env = environment(PATH=path, **(marks or {}))
        try:
            with server(
                command, docker.log, ready=lambda: docker.run("info").returncode == 0, env=env
            ):
                _remove_what_was_left(docker)
                yield Behind(docker, pid)
        finally:
            unmounted(folder)
            shutil.rmtree(folder)


def _remove_what_was_left(docker: Docker) -> None:
    """Removes an earlier run's clusters from a storage that is kept for its images."""
    for one in docker("ps", "--all", "--quiet").split():
        docker("rm", "--force", one)
    for one in docker("volume", "ls", "--quiet").split():
        docker("volume", "rm", one)
    docker("network", "prune", "--force")


def _runtime(folder: Path, runtime: Path | None) -> list[str]:
    """The flags for another runtime, where one is given, or where root may not raise limits."""
    if runtime is None and may_open(_OPEN_FILES):
        return []
    if runtime is None:
        runtime = folder / "runtime"
        shutil.copy(WITHIN_LIMITS, runtime)
        runtime.chmod(0o755)
    return [f"--add-runtime=other={runtime}", "--default-runtime=other"]


@contextlib.contextmanager
def _network_of_its_own(lan: Network, number: int) -> Iterator[int]:
    """A process in a network, and with a view of /dev, of its own."""
    work = Path(tempfile.mkdtemp(prefix="devices-"))
    command = ["unshare", "--net", "--mount", "sh", "-c", _DEVICES, "sh", str(work)]
    holder = subprocess.Popen(command, env=environment())
    try:
        mine = Path("/proc/self/ns/net").readlink()
        wait_for(
            "a network", lambda: Path(f"/proc/{holder.pid}/ns/net").readlink() != mine, DEADLINE_S
        )
        lan.join(holder.pid, number)
        yield holder.pid
    finally:
        stop(holder)
        shutil.rmtree(work, ignore_errors=True)
