"""What this machine remembers of clusters on Azure: one folder a stack.

It is only a memory: Pulumi's state says what there is.

    <folder>/stack.json     Record
    <folder>/token          the cluster's token, mode 0600
    <folder>/known_hosts    the head's host key, and those of workers that were asked for their log
    <folder>/tunnel.json    the tunnel's process and port
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from sunspot.targets.protocol import Progress, silent
from sunspot.targets.records import Folders, not_up
from sunspot.targets.tunnel import Tunnel

FILE = "stack.json"


@dataclass(frozen=True, kw_only=True)
class Record:
    """What is remembered of a cluster.

    `machine` tells this head from one that replaced it, `head` is its VM's name, `group_id` the ARM
    id of the resource group; the two are "" where an older version wrote them down.
    """

    folder: str
    stack: Mapping[str, Any]
    outputs: Mapping[str, Any]
    machine: str = ""
    head: str = ""
    group_id: str = ""


@dataclass(frozen=True)
class Records:
    """The memory of every cluster, one folder each in `root`."""

    root: Path

    @property
    def folders(self) -> Folders:
        """Their folders, and what is common to the records of every target."""
        return Folders(self.root, remedy="Remove it: Pulumi's state says what there is")

    def names(self) -> list[str]:
        """The stacks that are remembered."""
        return self.folders.names()

    def folder(self, name: str) -> Path:
        """Where a cluster's files lie; it need not exist."""
        return self.folders.path(name)

    def tunnel(self, name: str) -> Tunnel:
        """The tunnel to a cluster's head, open or not."""
        return Tunnel(self.folder(name))

    def read(self, name: str) -> Record | None:
        """What is remembered; None for nothing. Raises BrokenRecordsError for a damaged file."""
        fields = self.folders.read(name, FILE)
        try:
            return None if fields is None else Record(**fields)
        except TypeError as error:
            raise self.folders.broken(name, self.folder(name) / FILE, error) from error

    def known(self, name: str) -> Record:
        """What is remembered. Raises SunspotError where that is nothing."""
        record = self.read(name)
        if record is None:
            raise not_up(name)
        return record

    def write(self, name: str, record: Record) -> None:
        """Remembers this, in place of what was."""
        self.folders.write(name, FILE, asdict(record))

    def forget(self, name: str) -> None:
        """Ends the tunnel and removes the files."""
        self.tunnel(name).close()
        shutil.rmtree(self.folder(name), ignore_errors=True)

    def locked(self, name: str, progress: Progress = silent) -> AbstractContextManager[None]:
        """Keeps other commands from working on the cluster; waits, and says so, while one does."""
        return self.folders.locked(name, progress)
