"""The records of clusters on Azure: one folder per stack on this machine.

They are only a cache: what exists is in Pulumi's state.

    <folder>/stack.json     Record
    <folder>/token          the cluster's token, mode 0600
    <folder>/known_hosts    the head's host key, and those of workers whose log was read
    <folder>/tunnel.json    the tunnel's process and port
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sunspot.targets.azure.runs import Runs
from sunspot.targets.protocol import Progress, silent
from sunspot.targets.records import Folders, not_up
from sunspot.targets.tunnel import Tunnel

if TYPE_CHECKING:
    from sunspot.stack import Stack
    from sunspot.targets.azure.automation import StackState

FILE = "stack.json"


@dataclass(frozen=True, kw_only=True)
class Record:
    """The record of a cluster.

    Attributes:
        folder: the project's folder.
        stack: the stack, as plain values.
        outputs: the outputs of the program.
        machine: the unique id of the head's VM, which differs once the head is replaced.
        head: the name of the head's VM; "" in the record of an older version.
        group_id: the ARM id of the resource group; "" in the record of an older version.
    """

    folder: str
    stack: Mapping[str, Any]
    outputs: Mapping[str, Any]
    machine: str = ""
    head: str = ""
    group_id: str = ""


@dataclass(frozen=True)
class Records:
    """The records of all clusters, one folder each in `root`."""

    root: Path

    @property
    def folders(self) -> Folders:
        """The folders of the records, with what all targets' records share."""
        return Folders(self.root, remedy="Remove it: what exists is in Pulumi's state")

    def names(self) -> list[str]:
        """The stacks that have a record."""
        return self.folders.names()

    def folder(self, name: str) -> Path:
        """The folder of a cluster, which need not exist."""
        return self.folders.path(name)

    def tunnel(self, name: str) -> Tunnel:
        """The tunnel to a cluster's head, open or not."""
        return Tunnel(self.folder(name))

    def runs(self, name: str) -> Runs:
        """The runs of `pulumi` that change a stack, while they last."""
        return Runs(self.folder(name) / "pulumi")

    def read(self, name: str) -> Record | None:
        """The record of a cluster; None if there is none.

        Raises:
            BrokenRecordsError: the record cannot be read.
        """
        fields = self.folders.read(name, FILE)
        try:
            return None if fields is None else Record(**fields)
        except TypeError as error:
            raise self.folders.broken(name, self.folder(name) / FILE, error) from error

    def known(self, name: str) -> Record:
        """The record of a cluster.

        Raises:
            NotUpError: there is none.
            BrokenRecordsError: it cannot be read.
        """
        record = self.read(name)
        if record is None:
            raise not_up(name)
        return record

    def write(self, name: str, record: Record) -> None:
        """Writes the record of a cluster."""
        self.folders.write(name, FILE, asdict(record))

    def remember(self, name: str, folder: Path, stack: Stack, state: StackState) -> Record:
        """Writes the record from Pulumi's state; forgets the host key of a replaced head."""
        before = self.read(name)
        head = state.head
        machine = "" if head is None else str(head.outputs.get("vmId") or head.id)
        if before is None or before.machine != machine:
            self.tunnel(name).close()
            (self.folder(name) / "known_hosts").unlink(missing_ok=True)
        record = Record(
            folder=str(folder),
            stack=stack.model_dump(mode="json"),
            outputs=dict(state.outputs),
            machine=machine,
            head="" if head is None else head.id.rpartition("/")[2],
            group_id=state.group_id or "",
        )
        self.write(name, record)
        return record

    def forget(self, name: str) -> None:
        """Closes a cluster's tunnel and removes its record."""
        with self.tunnel(name).closed():
            self.folders.remove(name)

    def locked(self, name: str, progress: Progress = silent) -> AbstractContextManager[None]:
        """Locks a cluster against other commands, as `Folders.locked` does."""
        return self.folders.locked(name, progress)
