"""A target and its clusters during the tests: the command, and a census of all that exists."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml
from ending import name_of
from leftovers import held_ports, paths_below, pids_with_files_in
from sunspot_command import SunspotCommand
from waiting import wait_for

from sunspot.node.local.folder import ClusterFolder
from sunspot.node.processes import is_alive
from sunspot.spec import RayNodeConfig
from sunspot.targets.protocol import Target

MARK = "CONTRACT_SITE"
"""In the environment of all that a site's commands start, and what that starts."""

# The stacks of each site; two, for clusters beside each other.
STACKS = ("one", "two")

BEGUN = "begun"
"""The first stage of `up` on each target: something is written down."""

# A job that runs until it is stopped, and says when it has begun.
FOREVER = ("python", "-c", "import signal; print('it', 'began', flush=True); signal.pause()")

# Files for all clusters that there ever are.
SHARED = {".ports.lock"}

# A head, and a group of one worker that can become two.
SMALL = {"cpu": 1, "memory_gb": 2}
ONE_WORKER: dict[str, Any] = {
    "head_node": SMALL,
    "scaling_groups": [
        {
            "name": "workers",
            "market": "spot",
            "min_workers": 1,
            "max_workers": 2,
            "worker_nodes": SMALL,
        }
    ],
    "autoscaler_config": {"cpu": 0.5, "memory_gb": 1},
}


@dataclass(frozen=True, kw_only=True)
class Site(SunspotCommand):
    """One target with a project, a state directory and a home of its own, all in `root`.

    Attributes:
        place: the target itself, to ask for its abilities.
        cluster: what its stack files say of the cluster.
        config: what they say besides.
        stages: by what line of its progress each stage of `up` is known, in their order.
        records: the folder of its records in the state directory.
        record_file: the one that tells of a cluster.
        program: what stands before the command's arguments.
        tools: a folder that goes first on the PATH.
        variables: what its commands find in their environment besides.
        temp_dirs: where its clusters keep files outside `root`.
        elsewhere: what exists of it that is neither process nor file, one line each.
        network: enters the network that its ports are in, where that is not this machine's.
    """

    place: Target
    root: Path
    cluster: Mapping[str, Any]
    stages: tuple[str, ...]
    records: str
    record_file: str
    config: Mapping[str, Any] = field(default_factory=dict)
    program: tuple[str, ...] = (sys.executable, "-m", "sunspot.cli")
    tools: Path | None = None
    variables: Mapping[str, str] = field(default_factory=dict)
    temp_dirs: tuple[Path, ...] = ()
    elsewhere: Callable[[], list[str]] = list
    network: Callable[[], contextlib.AbstractContextManager[None]] = contextlib.nullcontext

    def command(self, *arguments: str) -> list[str]:
        return [*self.program, *arguments]

    def environment(self) -> dict[str, str]:
        own = {MARK: str(self.root), **self.variables}
        if self.tools is not None:
            own["PATH"] = f"{self.tools}{os.pathsep}{os.environ['PATH']}"
        return super().environment() | own

    def prepare(self) -> None:
        """Makes the project with its stack files."""
        for folder in (self.project, self.home, self.empty):
            folder.mkdir(exist_ok=True)
        (self.project / "Pulumi.yaml").write_text("name: sunspot\nruntime: python\n")
        for name in STACKS:
            self.write_stack(name, self.cluster)

    def write_stack(self, name: str, cluster: Mapping[str, Any]) -> None:
        """Writes Pulumi.<name>.yaml into the project."""
        config = {"sunspot:target": self.place.name, "sunspot:cluster": cluster, **self.config}
        text = yaml.safe_dump({"config": config})
        (self.project / f"Pulumi.{name}.yaml").write_text(text)

    @contextlib.contextmanager
    def at_stage(self, stage: str, name: str) -> Iterator[subprocess.Popen[str]]:
        """`sunspot up NAME`, which has come to that stage; killed if the block does not end it.

        It leads a process group, as a command that a shell runs in a terminal.
        """
        with subprocess.Popen(
            self.command("up", name),
            cwd=self.project,
            env=self.environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            process_group=0,
        ) as up:
            try:
                if stage == BEGUN:
                    wait_for("the records", lambda: self.record(name).exists())
                else:
                    assert up.stderr is not None
                    lines = []
                    while stage not in (line := up.stderr.readline()):
                        assert line, f"it ended before {stage!r}: {lines}"
                        lines.append(line)
                yield up
            finally:
                up.kill()

    def status(self, name: str) -> dict[str, Any]:
        """What `sunspot status --json` tells of a cluster that is up."""
        return json.loads(self.ok("status", name, "--json"))

    def submit(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """`sunspot submit` from an empty folder, to the first cluster if none is named."""
        stack = () if "--stack" in arguments else ("--stack", STACKS[0])
        return self("submit", *stack, "--working-dir", str(self.empty), *arguments)

    @property
    def empty(self) -> Path:
        """A folder without files."""
        return self.home / "empty"

    @property
    def head_cpus(self) -> int:
        """The CPUs of a head, as its stack files have it."""
        return int(RayNodeConfig(**self.cluster["head_node"]).cpu)

    def record(self, name: str) -> Path:
        """The record of a cluster, which need not exist."""
        return self.state / self.records / name / self.record_file

    def census(self) -> set[str]:
        """All that exists of this target's clusters."""
        found = self.processes()
        return {
            *(f"process {process.pid}: {_called(process)}" for process in found),
            *(f"port {port}" for port in _listening(found)),
            *(str(path) for path in self._files()),
            *self.elsewhere(),
        }

    def processes(self) -> list[psutil.Process]:
        """Those that bear the mark or have a file of this site open, and their descendants."""
        holders = pids_with_files_in(self.root, *self.temp_dirs)
        found: dict[int, psutil.Process] = {}
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error, OSError):
                if process.pid in holders or process.environ().get(MARK) == str(self.root):
                    found |= {one.pid: one for one in (process, *process.children(recursive=True))}
        return [process for process in found.values() if is_alive(process)]

    def pids(self, name: str) -> set[int]:
        """Its processes of that name."""
        return {process.pid for process in self.processes() if name_of(process) == name}

    def ports(self) -> set[int]:
        """The TCP ports on which its processes listen."""
        with self.network():
            return _listening(self.processes())

    def held_ports(self, ports: set[int], since: float) -> list[int]:
        """Those of the ports that a process from before `since` (a Unix time) still holds."""
        with self.network():
            return held_ports(ports, since)

    def _files(self) -> Iterator[Path]:
        """Files, and folders that name a cluster: those in the folder of a target."""
        for folder in (self.root, *self.temp_dirs):
            for path in paths_below(folder):
                is_shared = path.name in SHARED or (path.is_dir() and path.parent == self.state)
                if not is_shared and path != self.state:
                    yield path


@dataclass(frozen=True)
class Cluster:
    """The cluster "one" of a site: what its `up` printed, and what was there before."""

    printed: str
    before: set[str]


def parametrize(
    metafunc: pytest.Metafunc,
    stages: Mapping[str, Sequence[str]],
    needs: Mapping[str, list[pytest.MarkDecorator]],
) -> None:
    """Runs a test at every site; one that takes a `stage`, at each of its stages.

    Args:
        metafunc: the test.
        stages: the stages of each site.
        needs: the marks that the tests at a site get.
    """
    if "stage" in metafunc.fixturenames:
        pairs = [(name, stage) for name, of_site in stages.items() for stage in of_site]
    elif "site" in metafunc.fixturenames:
        pairs = [(name, None) for name in stages]
    else:
        return
    names = ["site"] if pairs[0][1] is None else ["site", "stage"]
    metafunc.parametrize(
        names,
        [
            pytest.param(
                *pair[: len(names)], marks=needs.get(pair[0], []), id="-".join(filter(None, pair))
            )
            for pair in pairs
        ],
        indirect=["site"],
        scope="session",
    )


def shared_cluster(site: Site) -> Iterator[Cluster]:
    """The cluster "one", which is up until the tests end or one of them takes it down."""
    before = site.census()
    yield Cluster(site.ok("up", "one"), before)
    site("down", "one")


def folders(root: Path) -> dict[str, Any]:
    """Where a site's things are."""
    return {"root": root, **{name: root / name for name in ("project", "state", "home")}}


def _listening(processes: list[psutil.Process]) -> set[int]:
    """The TCP ports that these processes listen on."""
    found = set()
    for process in processes:
        with contextlib.suppress(psutil.Error):
            found |= {
                one.laddr.port
                for one in process.net_connections("tcp")
                if one.status == psutil.CONN_LISTEN
            }
    return found


def _called(process: psutil.Process) -> str:
    with contextlib.suppress(psutil.Error):
        return " ".join(process.cmdline())[:100]
    return "ended"


def temp_dirs(clusters: Path) -> tuple[Path, ...]:
    """Where clusters of Ray keep sockets and logs whose records are in `clusters`."""
    return tuple(ClusterFolder(clusters / name).temp_dir for name in STACKS)
