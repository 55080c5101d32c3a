"""Ray on a host: `ray.sh` as the VM's unit runs it, on the host's network instead of Docker's.

Each node has its own /run, /var/lib and /tmp/ray in mounts that this machine does not see.
"""

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from ipaddress import IPv4Interface
from pathlib import Path
from types import MappingProxyType
from typing import Self

from waiting import wait_for

from cloud_init import AzureFacts, NodeValues
from cloud_init.render import environment
from machines import lan
from sunspot.ray.resources import GIB, NodeResources

ROOT = Path(__file__).resolve().parents[3]
RAY_SH = ROOT / "cloud_init/files/usr/local/lib/sunspot/ray.sh"
VENV_BIN = Path(sys.executable).parent
TOKEN = "t0ken" * 10
DEADLINE_S = 240.0
ATTEMPTS = 6
NO_SETTINGS: Mapping[str, str] = MappingProxyType({})

# `docker run` without a container: its volumes become mounts, its entry point runs here.
DOCKER = """#!/bin/bash
set -eu
[ "$1" = run ] || exit 0
shift
while [[ $1 == --* ]]; do
    case $1 in
    --entrypoint=*) entry=${1#*=} ;;
    --volume=*)
        IFS=: read -r from to _ <<<"${1#*=}"
        if [ "$from" != "$to" ]; then
            mkdir -p "$to"
            mount --bind "$from" "$to"
        fi
        ;;
    esac
    shift
done
shift # the image
exec "$entry" "$@"
"""
# A VM's name resolves to its address, as Azure's DNS has it.
ENTER = """
set -eu
mount --bind "$1/run" /run
mount --bind "$1/lib" /var/lib
mkdir -p /var/lib/sunspot/state
mount --bind /var/lib/sunspot/state /var/lib/sunspot/state
mount --bind "$1/hosts" /etc/hosts
shift
exec "$@"
"""


@dataclass(frozen=True)
class RayHost:
    """A node that was started; `process` is its `ray start --block`."""

    host: lan.Host
    folder: Path
    environment: Mapping[str, str]
    process: subprocess.Popen[bytes]

    @classmethod
    def start(
        cls, host: lan.Host, head: IPv4Interface, folder: Path, settings: Mapping[str, str]
    ) -> Self:
        """Starts what a VM at this host's address would start. `folder` is the node's own."""
        _furnish(folder, host)
        environment = {**_environment(host, head, folder), **settings}
        command = host.command("bash", "-c", ENTER, "bash", str(folder), str(RAY_SH))
        with (folder / "output").open("wb") as output:
            process = subprocess.Popen(
                command,
                env=environment,
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        return cls(host, folder, environment, process)

    def is_up(self) -> bool:
        """Whether `ray start` says that it is up; a worker's does when the GCS knows the node."""
        return "Ray runtime started." in self.output()

    def comes_up(self) -> bool:
        """Waits for the node to be up; whether it is, before it died or the deadline came."""
        with contextlib.suppress(AssertionError):
            wait_for("Ray", lambda: self.is_up() or self.process.poll() is not None, DEADLINE_S)
        return self.is_up()

    def output(self) -> str:
        return (self.folder / "output").read_text(errors="replace")

    def run(self, *command: str, timeout: float) -> subprocess.CompletedProcess[str]:
        """Runs a command on the node, in the mounts that Ray has there."""
        enter = ["nsenter", f"--target={self.process.pid}", "--mount", "--net", "--uts"]
        return subprocess.run(
            [*enter, *command],
            env=self.environment,
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )

    def stop(self) -> None:
        """Kills all of the node: to end in order takes it seconds, and nobody needs that here."""
        lan.kill_all(self.host.namespace)
        self.process.wait(timeout=lan.DEADLINE_S)


@contextlib.contextmanager
def running(
    host: lan.Host, head: IPv4Interface, folder: Path, settings: Mapping[str, str] = NO_SETTINGS
) -> Iterator[RayHost]:
    """The node while the block runs, which it may enter before the node is up.

    `settings` are variables of Ray's beside those of the units.
    """
    node = RayHost.start(host, head, folder, settings)
    try:
        yield node
    finally:
        node.stop()


@contextlib.contextmanager
def joined(
    host: lan.Host, head: IPv4Interface, folder: Path, settings: Mapping[str, str] = NO_SETTINGS
) -> Iterator[RayHost]:
    """The node while the block runs, from when it is up.

    One that dies is started anew, as systemd does it. RuntimeError with what the last one said when
    none comes up.
    """
    said = ""
    for attempt in range(ATTEMPTS):
        with running(host, head, folder / str(attempt), settings) as node:
            if node.comes_up():
                yield node
                return
            said = node.output()
    raise RuntimeError(f"{host.name} did not come up {ATTEMPTS} times\n{said[-5000:]}")


def _furnish(folder: Path, host: lan.Host) -> None:
    for name in ("run/sunspot", "lib", "bin", "scratch", "home"):
        (folder / name).mkdir(parents=True)
    token = folder / "run/sunspot/token"
    token.write_text(TOKEN)
    token.chmod(0o600)
    (folder / "hosts").write_text(f"127.0.0.1 localhost\n{host.ip} {host.name}\n")
    docker = folder / "bin/docker"
    docker.write_text(DOCKER)
    docker.chmod(0o755)


def _environment(host: lan.Host, head: IPv4Interface, folder: Path) -> dict[str, str]:
    """What the units give ray.sh."""
    is_head = host.address == head
    values = NodeValues(
        role="head" if is_head else "worker",
        group="head" if is_head else "workers",
        market="on-demand" if is_head else "spot",
        cluster="sunspot-test",
        image="ray",
        resources=NodeResources(cpus=1, gpus=0, memory=4 * GIB),
        driver="none",
        facts=AzureFacts(
            built_image=None,
            registry=None,
            head_address=str(head.ip),
            vault_url="https://vault.invalid/",
            token_secret="ray-token",
            storage_url="",
            subscription_id="none",
            resource_group="none",
            identity_client_id="none",
        ),
        scale_set=None if is_head else "workers",
    )
    return {
        "PATH": f"{folder / 'bin'}:{VENV_BIN}:{os.environ['PATH']}",
        "HOME": str(folder / "home"),
        **environment(values),
        "SUNSPOT_SCRATCH": str(folder / "scratch"),
        "SUNSPOT_IMAGE_USER": str(os.getuid()),
        "RAY_CLOUD_INSTANCE_ID": host.name,
    }
