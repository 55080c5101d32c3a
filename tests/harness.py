"""The `sunspot` command as a user runs it, in a project and a home of its own."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import psutil
import yaml
from ending import kill, words_of
from leftovers import pids_with_files_in
from sunspot_command import SunspotCommand

from sunspot.node.free_ports import port_is_free
from sunspot.node.local.folder import CLUSTER_VARIABLE, ClusterFolder
from sunspot.ray.jobs import Job, JobClient
from sunspot.targets.local.target import LocalTarget

ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
COLOUR = re.compile(r"\x1b\[(?:\d+;)*(?:3\d|4\d|9\d)(?:;\d+)*m")

SMALL = {"cpu": 1, "memory_gb": 2}

# A job that runs until it is stopped, and says when it has begun.
FOREVER = ("python", "-c", "import signal; print('begun', flush=True); signal.pause()")


@dataclass(frozen=True, kw_only=True)
class Sunspot(SunspotCommand):
    """The command, and what the local target has of its clusters."""

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
        with contextlib.suppress(psutil.NoSuchProcess):
            processes[record.pid] = psutil.Process(record.pid)
    assert processes, f"node {node} has no processes"
    kill(processes.values())


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
        *(f"process {p.pid} ({' '.join(words_of(p))[:80]})" for p in folder.processes()),
        *(f"process {pid} has a file of it open" for pid in pids_with_files_in(folder.temp_dir)),
        *(f"port {port}" for port in ports if not port_is_free(port)),
        *(str(path) for path in (folder.path, folder.temp_dir) if path.exists()),
    ]


def marked_processes(state: Path) -> list[str]:
    """The processes of any cluster below a state folder, by the mark in their environment."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if process.environ().get(CLUSTER_VARIABLE, "").startswith(f"{state}{os.sep}"):
                found.append(f"{process.pid} {process.name()}")
    return found
