"""A Docker engine of the test's own, beside any other of this machine."""

import contextlib
import json
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from machines.kept import locked, unmounted
from machines.processes import DEADLINE_S, checked, environment, server


@dataclass(frozen=True)
class Docker:
    """The client of one engine. Debian's client, so that BuildKit needs no plugin.

    `log` is the engine's. `enter` is what a command line begins with to be where the engine is.
    """

    socket: Path
    log: Path
    enter: tuple[str, ...] = ()

    def __call__(
        self, *arguments: str | Path, timeout: float = DEADLINE_S, stdin: str | None = None
    ) -> str:
        """`docker ARGUMENTS`; what it printed. Raises StepError unless it exits with 0."""
        command, env = self.command(*arguments), self.environment
        return checked(command, env=env, stdin=stdin, timeout=timeout)

    def run(self, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
        """`docker ARGUMENTS`, whatever its exit status."""
        return subprocess.run(
            self.command(*arguments),
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=DEADLINE_S,
        )

    def command(self, *arguments: str | Path) -> list[str]:
        return [*self.enter, "docker", *map(str, arguments)]

    def inspect(self, name: str) -> dict[str, Any]:
        return json.loads(self("inspect", name))[0]

    def has_image(self, reference: str) -> bool:
        return self.run("image", "inspect", reference).returncode == 0

    @property
    def environment(self) -> dict[str, str]:
        return environment(DOCKER_HOST=f"unix://{self.socket}", DOCKER_BUILDKIT="1")


@contextlib.contextmanager
def engine(data_root: Path, *, insecure_registries: Sequence[str] = ()) -> Iterator[Docker]:
    """An engine without a network of its own; containers use `--network=host` or `none`.

    `data_root` may be kept: images and build steps in it serve the next run. It is used by one
    engine at a time, a second one waits. `insecure_registries` are addresses or CIDR ranges that
    are asked by http; loopback addresses are anyway.
    """
    data_root.mkdir(parents=True, exist_ok=True)
    with locked(data_root):
        # A socket's path must be short.
        folder = Path(tempfile.mkdtemp(prefix="engine-"))
        docker = Docker(folder / "docker.sock", folder / "dockerd.log")
        command = [
            "dockerd",
            *("--data-root", data_root, "--exec-root", folder / "exec"),
            *("--host", f"unix://{docker.socket}", "--pidfile", folder / "dockerd.pid"),
            *("--config-file", folder / "daemon.json"),
            *("--bridge=none", "--iptables=false", "--shutdown-timeout=20"),
            in_cpu_group(),
            *(f"--insecure-registry={registry}" for registry in insecure_registries),
        ]
        (folder / "daemon.json").write_text("{}")
        try:
            with server(command, docker.log, ready=lambda: docker.run("info").returncode == 0):
                yield docker
        finally:
            unmounted(folder)
            shutil.rmtree(folder)


def in_cpu_group() -> str:
    """What lets an engine's containers share this process's part of the processors."""
    return f"--cgroup-parent={cpu_group().rstrip('/')}/docker"


def cpu_group() -> str:
    """The control group (version 1) whose CPU share this process has, for containers to share."""
    lines = Path("/proc/self/cgroup").read_text().splitlines()
    groups = (line.split(":", 2) for line in lines)
    return next((path for _, names, path in groups if "cpu" in names.split(",")), "/")
