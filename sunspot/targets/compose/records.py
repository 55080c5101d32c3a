"""The record of a cluster in Docker Compose, and the files beside it.

compose.yaml     what Compose runs; a user may edit it
cluster.json     where it runs, the ports it has, its nodes, and which of them are wanted
ray-token ...    its secrets, each with mode 0600
"""

from __future__ import annotations

import contextlib
import hashlib
import platform
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from sunspot.node.files import write_private
from sunspot.ray.resources import GIB
from sunspot.targets.compose.engine import COMPOSE_FILE
from sunspot.targets.compose.plan import ComposePlan
from sunspot.targets.compose.settings import again
from sunspot.targets.records import BrokenRecordsError, Folders, not_up
from sunspot.targets.tunnel import Tunnel

FILE = "cluster.json"


@dataclass(frozen=True, kw_only=True)
class NodeRecord:
    """One Ray node as the plan has it; memory in GiB."""

    name: str
    group: str
    market: str
    cpus: float
    gpus: float
    memory_gb: float


@dataclass(frozen=True, kw_only=True)
class Record:
    """One cluster.

    Attributes:
        stack: the stack, as plain values.
        engine: the address of the engine.
        project: the Compose project.
        ports: the host's port for each published one, by its name.
        nodes: the Ray nodes that compose.yaml has, the head first.
        wanted: the names of those that are to run.
        services: the services besides the Ray nodes.
        builds: the services whose image is built, in the order in which they are.
        notes: what a user should know of the plan, one sentence each.
        written: the hash of compose.yaml as it was written.
        ready: whether the cluster has been up.
    """

    stack: Mapping[str, Any]
    engine: str
    project: str
    ports: Mapping[str, int]
    nodes: tuple[NodeRecord, ...]
    wanted: tuple[str, ...]
    services: tuple[str, ...]
    builds: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    written: str = ""
    ready: bool = False

    def of_group(self, group: str) -> list[str]:
        """The names of a group's nodes."""
        return [node.name for node in self.nodes if node.group == group]


@dataclass(frozen=True)
class Records:
    """The records of the clusters whose folders are in `root`."""

    root: Path
    folders: Folders = field(init=False)

    def __post_init__(self) -> None:
        up = again("{name}")
        remedy = f"Take the cluster down and start again: sunspot down {{name}} && {up}"
        object.__setattr__(self, "folders", Folders(self.root, remedy=remedy))

    @property
    def owner(self) -> str:
        """What tells the containers of these records from those of other users and folders."""
        return hashlib.sha256(f"{_machine()}:{self.root}".encode()).hexdigest()[:12]

    def folder(self, name: str) -> Path:
        return self.folders.path(name)

    def tunnel(self, name: str) -> Tunnel:
        return Tunnel(self.folder(name))

    def read(self, name: str) -> Record | None:
        """The record; None if there is none.

        Raises:
            BrokenRecordsError: it cannot be read.
        """
        found = self.folders.read(name, FILE)
        if found is None:
            return None
        try:
            lists = {key: tuple(found[key]) for key in ("wanted", "services", "builds", "notes")}
            nodes = tuple(NodeRecord(**node) for node in found["nodes"])
            return Record(**{**found, **lists, "nodes": nodes})
        except (TypeError, KeyError) as error:
            raise self.folders.broken(name, self.folder(name) / FILE, error) from error

    def known(self, name: str) -> Record:
        """The record. Raises NotUpError if there is none, and as `read` does."""
        if (record := self.read(name)) is None:
            raise not_up(name)
        return record

    def write(self, name: str, record: Record) -> None:
        self.folders.write(name, FILE, asdict(record))

    def change(self, name: str, **changes: Any) -> Record:
        """Changes some fields; returns the record as it is then."""
        record = replace(self.known(name), **changes)
        self.write(name, record)
        return record

    def write_compose_file(self, name: str, text: str) -> Record:
        """Writes compose.yaml; returns the record, which has its hash."""
        # The hash first: an interrupt between the two must not look like an edit by hand.
        record = self.change(name, written=_hash(text))
        write_private(self.folder(name) / COMPOSE_FILE, text)
        return record

    def is_edited(self, name: str, record: Record) -> bool:
        """Whether somebody has changed compose.yaml since it was written."""
        try:
            return _hash((self.folder(name) / COMPOSE_FILE).read_text()) != record.written
        except OSError:
            return False

    def keep_edited(self, name: str) -> Path:
        """Moves compose.yaml out of the cluster's folder; returns where it is then."""
        kept = self.root / f"{name}.edited.yaml"
        number = 1
        while kept.exists():
            number += 1
            kept = self.root / f"{name}.edited-{number}.yaml"
        (self.folder(name) / COMPOSE_FILE).replace(kept)
        return kept

    def taken_ports(self) -> set[int]:
        """The ports of all clusters whose records can be read."""
        taken: set[int] = set()
        for name in self.folders.names():
            with contextlib.suppress(BrokenRecordsError):
                record = self.read(name)
                taken |= set() if record is None else set(record.ports.values())
        return taken


def nodes_of(plan: ComposePlan) -> tuple[NodeRecord, ...]:
    """What the record has of the plan's nodes."""
    return tuple(
        NodeRecord(
            name=node.name,
            group=node.group,
            market=node.market,
            cpus=float(node.resources.cpus),
            gpus=float(node.resources.gpus),
            memory_gb=node.resources.memory / GIB,
        )
        for node in plan.nodes
    )


def _machine() -> str:
    """What tells this machine from others, and stays when it gets another name."""
    with contextlib.suppress(OSError):
        return Path("/etc/machine-id").read_text().strip()
    return platform.node()


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
