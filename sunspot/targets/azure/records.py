"""What this machine remembers of clusters on Azure: one folder a stack.

It is only a memory: Pulumi's state says what there is.

    <folder>/stack.json     Record
    <folder>/token          the cluster's token, mode 0600
    <folder>/known_hosts    the head's host key, and those of workers that were asked for their log
    <folder>/tunnel.json    the tunnel's process and port
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from sunspot.errors import SunspotError
from sunspot.node.files import write_private
from sunspot.targets import records
from sunspot.targets.protocol import Progress, silent
from sunspot.targets.records import Folders
from sunspot.targets.tunnel import Tunnel


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
    def _folders(self) -> Folders:
        return Folders(self.root)

    def names(self) -> list[str]:
        """The stacks that are remembered."""
        return self._folders.names()

    def folder(self, name: str) -> Path:
        """Where a cluster's files lie; it need not exist."""
        return self._folders.path(name)

    def tunnel(self, name: str) -> Tunnel:
        """The tunnel to a cluster's head, open or not."""
        return Tunnel(self.folder(name))

    def read(self, name: str) -> Record | None:
        """What is remembered; None for nothing. Raises SunspotError for a damaged file."""
        file = self.folder(name) / "stack.json"
        try:
            return Record(**json.loads(file.read_text()))
        except FileNotFoundError:
            return None
        except (OSError, ValueError, TypeError) as error:
            raise broken(name, file, error) from error

    def known(self, name: str) -> Record:
        """What is remembered. Raises SunspotError where that is nothing."""
        record = self.read(name)
        if record is None:
            raise not_up(name)
        return record

    def write(self, name: str, record: Record) -> None:
        """Remembers this, in place of what was."""
        write_private(self.folder(name) / "stack.json", json.dumps(asdict(record)))

    def forget(self, name: str) -> None:
        """Ends the tunnel and removes the files."""
        self.tunnel(name).close()
        shutil.rmtree(self.folder(name), ignore_errors=True)

    def locked(self, name: str, progress: Progress = silent) -> AbstractContextManager[None]:
        """Keeps other commands from working on the cluster; waits, and says so, while one does."""
        return self._folders.locked(name, progress)


def not_up(name: str) -> SunspotError:
    """The error for a cluster that is not there."""
    return SunspotError(f"stack {name!r} is not up on azure; start it with: sunspot up {name}")


def broken(name: str, file: Path, error: Exception) -> SunspotError:
    """The error for a file that cannot be read."""
    what = f"{file} cannot be read ({' '.join(str(error).split())})"
    return records.broken(name, what, "Remove it: Pulumi's state says what there is")
