"""The nodes of a local cluster: their records on disk, and their processes.

A cluster is one folder; each node has a record in it (what to start) and, once it runs, a pid
file that the node's own process wrote. Every process of a cluster has the cluster's id in its
environment, so that all of them can be found, also those that a killed parent left behind.

    <folder>/cluster.json        ClusterRecord
    <folder>/token               the cluster's authentication token, mode 0600
    <folder>/events.jsonl        EventRecord
    <folder>/notices.json        Notices
    <folder>/awake.yaml          the autoscaler's config of before, while the cluster sleeps
    <folder>/gcs                 the GCS's state
    <folder>/nodes/NAME.json     NodeRecord
    <folder>/nodes/NAME.pid      Process
    <folder>/nodes/NAME.log      what `ray start` printed
    <folder>/nodes/NAME.notes    what happened to it, a line each
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import time
from collections.abc import Collection, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

import psutil

from sunspot.node.events import Event, EventRecord
from sunspot.node.files import locked, write_private
from sunspot.node.free_ports import free_port
from sunspot.node.local.exits import ending
from sunspot.node.notices import Notices
from sunspot.node.processes import Process, is_alive, stop

CLUSTER_VARIABLE = "SUNSPOT_CLUSTER"
NODE_VARIABLE = "SUNSPOT_NODE"


HEAD = "head"
HEAD_TEMP_DIR = "0"

# How many lines of a log an error shows.
TAIL_LINES = 12
COLOUR_CODE = re.compile(r"\x1b\[[0-9;]*m")


class BrokenRecordError(Exception):
    """A record on disk is not as Sunspot wrote it; the message names the file."""


@dataclass(frozen=True, kw_only=True)
class NodeShape:
    """What every node of a group has, and how it is started. `memory` is bytes.

    `flags` are those of `ray start`, `environment` are the variables that Ray reads; ray_start.py
    adds what differs from node to node.
    """

    group: str
    market: str
    cpus: int
    gpus: int
    memory: int
    flags: list[str]
    environment: dict[str, str]


@dataclass(frozen=True, kw_only=True)
class NodeRecord:
    """One node, recorded before it starts.

    `goal` is the wanted state: a node that should be up and whose process is gone is lost; one
    that should be down is not.
    """

    name: str
    shape: NodeShape
    agent_port: int
    temp_dir: str
    goal: Literal["up", "down"] = "up"

    @property
    def is_head(self) -> bool:
        return self.name == HEAD


@dataclass(frozen=True, kw_only=True)
class ClusterRecord:
    """One cluster. The launcher fills in `address` (HOST:PORT of the GCS) and `ready_at`.

    `client_port` is that of the server for `ray://` addresses; None if it has none. `suspended_at`
    is set from the moment when its nodes were to end until they are back.
    """

    name: str
    gcs_port: int
    dashboard_port: int
    shapes: dict[str, NodeShape]
    stack: dict[str, Any]
    address: str | None = None
    ready_at: float | None = None
    client_port: int | None = None
    suspended_at: float | None = None

    @property
    def ports(self) -> list[int]:
        """The ports of the head's servers, except the agent's."""
        client = [] if self.client_port is None else [self.client_port]
        return [self.gcs_port, self.dashboard_port, *client]


@dataclass(frozen=True)
class ClusterFolder:
    """The folder of one local cluster: reads and writes its records, finds its processes."""

    path: Path

    @property
    def token(self) -> Path:
        return self.path / "token"

    @property
    def autoscaler_config(self) -> Path:
        return self.path / "autoscaler.yaml"

    @property
    def awake_config(self) -> Path:
        return self.path / "awake.yaml"

    @property
    def events(self) -> EventRecord:
        """What happened to its nodes."""
        return EventRecord(self.path / "events.jsonl")

    @property
    def notices(self) -> Notices:
        """What is to be said of it now."""
        return Notices(self.path / "notices.json")

    @property
    def gcs_state(self) -> Path:
        """The folder of the GCS's state, which outlives the head's processes."""
        return self.path / "gcs"

    @property
    def temp_dir(self) -> Path:
        """Ray's folder of sockets and logs; short, since a socket's path may have 107 bytes."""
        digest = hashlib.sha256(str(self.path).encode()).hexdigest()[:8]
        return Path("/tmp") / f"sunspot-{os.getuid()}" / digest  # noqa: S108 - mode 0700, see make

    def exists(self) -> bool:
        return (self.path / "cluster.json").exists()

    def cluster(self) -> ClusterRecord:
        with _naming_broken(self.path / "cluster.json") as file:
            fields = json.loads(file.read_text())
            shapes = {name: NodeShape(**shape) for name, shape in fields.pop("shapes").items()}
            return ClusterRecord(**fields, shapes=shapes)

    def write_cluster(self, record: ClusterRecord) -> None:
        write_private(self.path / "cluster.json", json.dumps(asdict(record), indent=1))

    def update_cluster(self, **changes: Any) -> ClusterRecord:
        record = replace(self.cluster(), **changes)
        self.write_cluster(record)
        return record

    def nodes(self) -> list[NodeRecord]:
        """Every node that this cluster ever had: the head, then by group and number."""
        files = (self.path / "nodes").glob("*.json")
        return sorted(map(self._read_node, files), key=lambda n: (not n.is_head, *_natural(n.name)))

    def _read_node(self, path: Path) -> NodeRecord:
        with _naming_broken(path) as file:
            fields = json.loads(file.read_text())
            return NodeRecord(**fields | {"shape": NodeShape(**fields["shape"])})

    def write_node(self, record: NodeRecord) -> None:
        write_private(self.path / "nodes" / f"{record.name}.json", json.dumps(asdict(record)))

    def add_node(self, shape: NodeShape, reason: str = "for `sunspot up`") -> NodeRecord:
        """Records a new node of that shape, and why it is launched. Names are never reused.

        The record itself reserves the port of the node's agent; call this with `ports_locked`.
        """
        nodes = self.nodes()
        number = sum(node.shape.group == shape.group for node in nodes)
        node = NodeRecord(
            name=HEAD if shape.group == HEAD else f"{shape.group}-{number}",
            shape=shape,
            agent_port=free_port(reserved_ports(self.path.parent)),
            temp_dir=str(self.temp_dir / (str(len(nodes)) if nodes else HEAD_TEMP_DIR)),
        )
        self.write_node(node)
        launched = Event(kind="launched", group=shape.group, node=node.name, reason=reason)
        self.events.add(launched)
        return node

    def log(self, node: str) -> Path:
        return self.path / "nodes" / f"{node}.log"

    def log_tail(self, node: str) -> str:
        """Why a node's Ray ended, if its log says so, and the log's last lines; "" if none.

        Without colour codes, and without Ray's own logs, which `ray start` copies at the end: the
        nodes of a cluster share one folder of them, so they may be another node's.
        """
        return "\n".join(ending(_lines(self.log(node)), TAIL_LINES))

    def ray_log_tail(self, name: str) -> str:
        """The last lines of one of Ray's own logs, "dashboard.log" for instance."""
        log = self.temp_dir / HEAD_TEMP_DIR / "session_latest" / "logs" / name
        return "\n".join(_lines(log)[-TAIL_LINES:])

    def add_note(self, node: str, text: str) -> None:
        """Adds a line with the time to what `status` tells of a node."""
        with (self.path / "nodes" / f"{node}.notes").open("a") as file:
            file.write(f"{time.strftime('%H:%M:%S')} {text}\n")

    def notes(self, node: str) -> list[str]:
        """The lines of `add_note`, the oldest first."""
        return _lines(self.path / "nodes" / f"{node}.notes")

    def process(self, node: str) -> Process | None:
        """The node's process as it recorded itself; None before it started."""
        try:
            with _naming_broken(self.path / "nodes" / f"{node}.pid") as file:
                return Process(**json.loads(file.read_text()))
        except FileNotFoundError:
            return None

    def record_process(self, node: str, process: Process) -> None:
        write_private(self.path / "nodes" / f"{node}.pid", json.dumps(asdict(process)))

    def forget_process(self, node: str) -> None:
        """Makes a node one that has not started yet."""
        (self.path / "nodes" / f"{node}.pid").unlink(missing_ok=True)

    def is_running(self, node: str) -> bool:
        process = self.process(node)
        return process is not None and process.is_running()

    def processes(
        self, node: str | None = None, *, sessions: Collection[int] | None = None
    ) -> list[psutil.Process]:
        """The running processes of the cluster, or of one of its nodes; never the caller itself.

        They are those whose environment names it, those in the sessions of its nodes, and the
        descendants of both. Ray's agents overwrite their environment when they set their process
        title, but keep their session when the node's own process is killed.

        Args:
            node: the node's name; None for all of the cluster.
            sessions: what `sessions` returned, for when the records are gone.
        """
        wanted = {CLUSTER_VARIABLE: str(self.path)} | ({NODE_VARIABLE: node} if node else {})
        ours = self.sessions(node) if sessions is None else sessions
        found: dict[int, psutil.Process] = {}
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error, OSError):
                if os.getsid(process.pid) in ours or wanted.items() <= process.environ().items():
                    found |= {p.pid: p for p in [process, *process.children(recursive=True)]}
        return [p for p in found.values() if p.pid != os.getpid() and is_alive(p)]

    def sessions(self, node: str | None = None) -> set[int]:
        """The ids of the sessions that the nodes' own processes lead, or led until they ended."""
        return {p.pid for p in self._recorded_processes(node) if not p.is_recycled()}

    def _recorded_processes(self, node: str | None) -> Iterator[Process]:
        for file in (self.path / "nodes").glob(f"{node or '*'}.pid"):
            with contextlib.suppress(OSError, BrokenRecordError):
                if process := self.process(file.stem):
                    yield process

    def stop(self, node: str | None = None, grace_s: float = 5.0) -> None:
        """Ends every process of the cluster or of one node, also those that start meanwhile.

        SIGTERM goes only to session leaders (`ray start` ends its own children in order, and
        raylets that get it while their GCS stops hang), SIGKILL to what is left after `grace_s`
        seconds. psutil compares start times first: a recycled pid is never hit.

        Raises:
            TimeoutError: some did not end.
        """
        deadline = time.monotonic() + grace_s + 20
        while processes := self.processes(node):
            if time.monotonic() > deadline:
                pids = ", ".join(str(process.pid) for process in processes)
                raise TimeoutError(f"these processes do not end: {pids}")
            stop(processes, grace_s)


def reserved_ports(clusters: Path) -> dict[int, str]:
    """The ports that the records of all local clusters claim, used or not: port -> cluster."""
    ports: dict[int, str] = {}
    for folder in map(ClusterFolder, clusters.glob("*/")):
        with contextlib.suppress(OSError, BrokenRecordError):
            cluster = folder.cluster()
            agents = [node.agent_port for node in folder.nodes()]
            ports |= dict.fromkeys([*cluster.ports, *agents], cluster.name)
    return ports


def ports_locked(clusters: Path) -> contextlib.AbstractContextManager[None]:
    """Holds the lock under which ports are chosen and recorded, for all local clusters."""
    return locked(clusters / ".ports.lock")


@contextlib.contextmanager
def _naming_broken(file: Path) -> Iterator[Path]:
    try:
        yield file
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise BrokenRecordError(f"{file} cannot be read ({error})") from error


def _lines(log: Path) -> list[str]:
    """A log's lines without colour codes; none if there is no such file."""
    try:
        text = log.read_text(errors="replace")
    except FileNotFoundError:
        return []
    return COLOUR_CODE.sub("", text).expandtabs(1).rstrip().splitlines()


def _natural(name: str) -> tuple[str, int]:
    group, _, number = name.rpartition("-")
    return (group, int(number)) if number.isdigit() else (name, 0)
