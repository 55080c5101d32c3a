"""What a cluster left behind, found without its records."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

import psutil

from sunspot.node.free_ports import port_is_free


def pids_with_files_in(*directories: Path) -> set[int]:
    """Other processes that hold a file of these folders open, also a deleted one (Linux only).

    Finds what has lost its mark: Ray's agents overwrite their environment.
    """
    within = tuple(f"{directory}{os.sep}" for directory in directories)
    found = set()
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it has ended, or is another user's
            for link in (process / "fd").iterdir():
                with contextlib.suppress(OSError):  # it was closed
                    if str(link.readlink()).startswith(within):
                        found.add(int(process.name))
    return found - {os.getpid()}  # Ray keeps a driver's log open after ray.shutdown


def paths_below(folder: Path) -> Iterator[Path]:
    """Every file and folder in a folder, however deep; one may go away meanwhile."""
    for at, folders, files in os.walk(folder):  # `Path.rglob` would raise then
        yield from (Path(at, name) for name in (*folders, *files))


def held_ports(ports: Iterable[int], since: float) -> list[int]:
    """Those of the ports that a process from before `since` (a Unix time) still holds, or none.

    What runs beside a test, such as a tunnel that wishes for 8265, may get one of them meanwhile.
    """
    holders = {
        one.laddr.port: one.pid
        for one in psutil.net_connections("tcp")
        if one.status == psutil.CONN_LISTEN and one.laddr
    }
    return [
        port
        for port in ports
        if not port_is_free(port) and _is_from_before(holders.get(port), since)
    ]


def _is_from_before(pid: int | None, since: float) -> bool:
    if pid is None:
        return True
    try:
        return psutil.Process(pid).create_time() < since
    except psutil.NoSuchProcess:
        return False
