"""The `sunspot` command as a user runs it, in a project and a home of its own."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
import yaml

from sunspot.node.free_ports import port_is_free
from sunspot.node.local.folder import CLUSTER_VARIABLE, ClusterFolder
from sunspot.ray.jobs import Job, JobClient
from sunspot.targets.local.target import LocalTarget
from sunspot.targets.records import STATE_DIRECTORY_VARIABLE

# How long a state may take to come about. Generous: the machine may be busy.
DEADLINE_S = 60.0

ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
COLOUR = re.compile(r"\x1b\[(?:\d+;)*(?:3\d|4\d|9\d)(?:;\d+)*m")

SMALL = {"cpu": 1, "memory_gb": 2}

# A job that runs until it is stopped, and says when it has begun.
FOREVER = ("python", "-c", "import signal; print('begun', flush=True); signal.pause()")


def clean_environment(state: Path, home: Path) -> dict[str, str]:
    """The caller's environment without what would steer Ray, Sunspot or colours."""
    steering = ("RAY_", "SUNSPOT_", "NO_COLOR", "FORCE_COLOR", "XDG_", "COLUMNS")
    kept = {k: v for k, v in os.environ.items() if not k.startswith(steering)}
    return kept | {STATE_DIRECTORY_VARIABLE: str(state), "HOME": str(home)}


@dataclass(frozen=True)
class Sunspot:
    """Runs the command in a project directory; `state` and `home` belong to it alone."""

    project: Path
    state: Path
    home: Path

    def __call__(
        self,
        *arguments: str,
        cwd: Path | None = None,
        timeout: float = DEADLINE_S,
    ) -> subprocess.CompletedProcess[str]:
        """Runs `sunspot ARGUMENTS` to its end. No answer of the command is ever a traceback."""
        done = subprocess.run(
            self.command(*arguments),
            cwd=cwd or self.project,
            env=self.environment(),
            capture_output=True,
            text=True,
            check=False,
            timeout=timeout,
        )
        assert "Traceback" not in done.stderr, done.stderr
        return done

    def ok(self, *arguments: str, cwd: Path | None = None) -> str:
        """The command's stdout; fails unless it exits with 0."""
        done = self(*arguments, cwd=cwd)
        assert done.returncode == 0, f"exit code {done.returncode}\n{done.stdout}{done.stderr}"
        return done.stdout

    @contextlib.contextmanager
    def started(self, *arguments: str) -> Iterator[subprocess.Popen[str]]:
        """The running command, its output in pipes; killed when the block ends before it does."""
        process = subprocess.Popen(
            self.command(*arguments),
            cwd=self.project,
            env=self.environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        with process:
            try:
                yield process
            finally:
                process.kill()

    def command(self, *arguments: str) -> list[str]:
        return [sys.executable, "-m", "sunspot.cli", *arguments]

    def environment(self) -> dict[str, str]:
        return clean_environment(self.state, self.home)

    def write_stack(self, name: str, cluster: object, target: str = "local") -> Path:
        """Writes Pulumi.<name>.yaml into the project."""
        path = self.project / f"Pulumi.{name}.yaml"
        config = {"sunspot:target": target, "sunspot:cluster": cluster}
        path.write_text(yaml.safe_dump({"config": config}))
        return path

    @property
    def target(self) -> LocalTarget:
        return LocalTarget(self.state / "clusters")

    def folder(self, name: str) -> ClusterFolder:
        return ClusterFolder(self.target.clusters / name)

    def client(self, name: str) -> JobClient:
        return JobClient(self.target.handle(name))

    def job(self, cluster: str, job_id: str) -> Job:
        return self.client(cluster).get(job_id)


def kill_node(folder: ClusterFolder, node: str) -> None:
    """SIGKILL for every process of a node at once, as when its machine is switched off."""
    record = folder.process(node)
    processes = {process.pid: process for process in folder.processes(node)}
    if record is not None and record.is_running():
        processes[record.pid] = psutil.Process(record.pid)
    assert processes, f"node {node} has no processes"
    for process in processes.values():
        with contextlib.suppress(psutil.NoSuchProcess):
            process.send_signal(signal.SIGKILL)


def alive(processes: Iterable[psutil.Process]) -> list[psutil.Process]:
    """Those that still run. A zombie does not: it only waits for its parent to take note."""
    found = []
    for process in processes:
        with contextlib.suppress(psutil.Error):
            if process.is_running() and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
    return found


def what_is_left(folder: ClusterFolder, ports: Iterable[int] = ()) -> list[str]:
    """Whatever of a cluster still exists: processes, open files, ports, folders."""
    return [
        *(f"process {p.pid} ({' '.join(p.cmdline())[:80]})" for p in folder.processes()),
        *(f"process {pid} has a file of it open" for pid in pids_with_files_in(folder.temp_dir)),
        *(f"port {port}" for port in ports if not port_is_free(port)),
        *(str(path) for path in (folder.path, folder.temp_dir) if path.exists()),
    ]


def pids_with_files_in(directory: Path) -> set[int]:
    """Other processes that hold a file of a folder open, also a deleted one (Linux alone).

    Finds what has lost its mark: Ray's agents overwrite their environment.
    """
    found = set()
    for link in Path("/proc").glob("[0-9]*/fd/*"):
        with contextlib.suppress(OSError):
            if str(link.readlink()).startswith(f"{directory}/"):
                found.add(int(link.parts[2]))
    return found - {os.getpid()}  # Ray keeps a driver's log open after ray.shutdown


def marked_processes(state: Path) -> list[str]:
    """The processes of any cluster below a state folder, by the mark in their environment."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if process.environ().get(CLUSTER_VARIABLE, "").startswith(f"{state}{os.sep}"):
                found.append(f"{process.pid} {process.name()}")
    return found
