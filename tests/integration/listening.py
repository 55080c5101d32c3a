"""The sockets that a cluster's processes listen on."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil

# How Ray's processes are called: by the file that they run, or by the title that they set.
KINDS = {
    r"gcs_server$": "GCS",
    r"raylet$": "raylet",
    r"dashboard\.py$|ray-dashboard-": "dashboard",
    r"(^|/)monitor\.py$": "autoscaler",
    r"dashboard/agent\.py$|^ray::DashboardAgent": "agent",
    r"runtime_env/agent/main\.py$|^ray::RuntimeEnvAgent": "runtime environment agent",
    r"^ray\.util\.client\.server$": "Ray Client",
    r"^ray::": "worker",
    r"^from multiprocessing\.forkserver": "dashboard",
}
DRIVER = "driver"

ACCEPTS = "00010000"  # __SO_ACCEPTCON, include/linux/net.h


@dataclass(frozen=True, kw_only=True, order=True)
class Listening:
    """One socket: whose it is, and where. `port` is None, and `at` a name, for a UNIX socket."""

    process: str
    at: str
    port: int | None = None


def kind(process: psutil.Process) -> str:
    """What a process of a cluster is, in a word."""
    command = process.cmdline()
    for pattern, name in KINDS.items():
        if any(re.search(pattern, argument) for argument in command):
            return name
    return DRIVER


def listening(processes: Iterable[psutil.Process]) -> set[Listening]:
    """Every TCP and UNIX socket, abstract ones too, that one of these processes listens on.

    UDP has no connections to wait for: there, every bound socket counts.
    """
    names = _unix_names()
    found: set[Listening] = set()
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess, FileNotFoundError):
            found |= {*_inet(process)}
            inodes = names.keys() & {*_inodes(process)}
            found |= {Listening(process=kind(process), at=names[inode]) for inode in inodes}
    return found


def _inet(process: psutil.Process) -> Iterator[Listening]:
    for one in process.net_connections("inet"):
        # gRPC opens IPv6 sockets, also for an IPv4 address.
        ip = one.laddr.ip.removeprefix("::ffff:") if one.laddr else ""
        if one.status == psutil.CONN_LISTEN:
            yield Listening(process=kind(process), at=ip, port=one.laddr.port)
        elif one.status == psutil.CONN_NONE and one.laddr and not one.raddr:
            yield Listening(process=kind(process), at=f"UDP {ip}", port=one.laddr.port)


def _unix_names() -> dict[str, str]:
    """The names of all listening UNIX sockets of this machine, by their inodes."""
    lines = Path("/proc/net/unix").read_text().splitlines()[1:]
    rows = (line.split(maxsplit=7) for line in lines)
    return {row[6]: row[7] if len(row) > 7 else "@" for row in rows if row[3] == ACCEPTS}


def _inodes(process: psutil.Process) -> Iterator[str]:
    for link in Path(f"/proc/{process.pid}/fd").iterdir():
        with contextlib.suppress(OSError):
            if found := re.fullmatch(r"socket:\[(\d+)\]", str(link.readlink())):
                yield found[1]


def files_below(folder: Path) -> list[str]:
    """Every file and folder below a folder, and itself, relative to it."""
    within = (Path(at) / name for at, folders, files in os.walk(folder) for name in folders + files)
    return [".", *(str(path.relative_to(folder)) for path in within)]


def written_by(process: psutil.Process) -> set[Path]:
    """The regular files that a process holds open for writing, those that still have a name."""
    found: set[Path] = set()
    with contextlib.suppress(psutil.NoSuchProcess, FileNotFoundError):
        for one in process.open_files():
            if one.mode != "r" and Path(one.path).is_file():
                found.add(Path(one.path))
    return found
