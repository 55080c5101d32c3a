"""What a stack needs of this machine, each precondition on its own."""

from __future__ import annotations

import os
import resource
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil

from sunspot.errors import SunspotError
from sunspot.node.free_ports import PORT_RANGE, free_port
from sunspot.node.local.folder import ClusterFolder
from sunspot.ray.resources import GIB
from sunspot.stack import Stack
from sunspot.targets.local import capacity, plan
from sunspot.targets.protocol import Finding
from sunspot.targets.records import STATE_DIRECTORY_VARIABLE

SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 - where Ray stores objects (services.py, 2.60)
TEMP = "/tmp"  # noqa: S108 - where ClusterFolder.temp_dir is

# Ray raises a soft limit to the hard one, and advises this much (ray/_private/worker.py, 2.60).
OPEN_FILES = 8192


def check(stack: Stack, folder: ClusterFolder) -> list[Finding]:
    """Everything that a stack, fitted to this target, needs of this machine."""
    return [
        _cores(),
        *_memory(stack),
        _shared_memory(stack),
        _disk(TEMP, folder, "temp"),
        _temp_folder(folder),
        _state_directory(folder),
        _open_files(),
        _ports(),
    ]


def _tried(name: str, ok: str, *attempts: Callable[[], object]) -> Finding:
    """The finding on what raises a SunspotError if it is not met."""
    try:
        for attempt in attempts:
            attempt()
    except (SunspotError, OSError) as error:
        return Finding(check=name, level="failure", detail=str(error))
    return Finding(check=name, level="ok", detail=ok)


def _cores() -> Finding:
    cores, load = len(os.sched_getaffinity(0)), os.getloadavg()[0]
    detail = f"{cores} for this process; {load:.1f} processes wanted one in the last minute"
    if load > capacity.BUSY_LOAD * cores:
        return Finding(
            check="cores",
            level="warning",
            detail=f"{detail}, so nodes may start too slowly for Ray",
            remedy="see what is busy: top",
        )
    return Finding(check="cores", level="ok", detail=detail)


def _memory(stack: Stack) -> Iterator[Finding]:
    memory = psutil.virtual_memory()
    total, free = memory.total / GIB, memory.available / GIB
    detail = f"{total:.1f} GiB, {free:.1f} of them available"
    found = _tried("memory", detail, lambda: capacity.check(stack))
    needed = capacity.needed_gib(stack)
    if found.level == "ok" and free < needed:
        found = Finding(
            check="memory",
            level="warning",
            detail=f"{detail}; Ray's own processes need {needed:.1f}",
            remedy="see what takes it: ps aux --sort -rss | head",
        )
    yield found


def _shared_memory(stack: Stack) -> Finding:
    name = str(SHARED_MEMORY)
    if not SHARED_MEMORY.is_dir():
        return Finding(
            check=name,
            level="warning",
            detail="does not exist; Ray stores objects in /tmp instead, which is slow",
            remedy=f"sudo mount -t tmpfs -o mode=1777 tmpfs {name}",
        )
    free = shutil.disk_usage(SHARED_MEMORY).free
    needed = plan.object_stores(stack)
    detail = f"{free / GIB:.1f} GiB free; the nodes that start first may store {needed / GIB:.1f}"
    if free < needed:
        size = f"{needed / GIB + 1:.0f}G"
        return Finding(
            check=name,
            level="warning",
            detail=f"{detail}, and Ray goes to /tmp for the rest, which is slow",
            remedy=f"sudo mount -o remount,size={size} {name}, or docker run --shm-size={size}",
        )
    return Finding(check=name, level="ok", detail=detail)


def _disk(name: str, folder: ClusterFolder, use: capacity.Disk) -> Finding:
    path = folder.temp_dir if use == "temp" else folder.path
    free = f"{capacity.free_mib(path) / 1024:.1f} GiB free"
    return _tried(name, free, lambda: capacity.check_disk(folder, use))


def _temp_folder(folder: ClusterFolder) -> Finding:
    return _tried(
        "folder for sockets",
        str(folder.temp_dir.parent),
        lambda: capacity.check_temp_folder(folder),
    )


def _state_directory(folder: ClusterFolder) -> Finding:
    name, place = "state directory", capacity.existing(folder.path)
    if not os.access(place, os.W_OK | os.X_OK):
        return Finding(
            check=name,
            level="failure",
            detail=f"{place} may not be written by this user",
            remedy=f"export {STATE_DIRECTORY_VARIABLE}=FOLDER with a folder of yours",
        )
    found = _disk(name, folder, "state")
    if found.level != "ok":
        return found
    return Finding(check=name, level="ok", detail=f"{folder.path.parent}, {found.detail}")


def _open_files() -> Finding:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    unlimited = hard == resource.RLIM_INFINITY
    detail = "no limit" if unlimited else f"at most {hard} a process"
    if not unlimited and hard < OPEN_FILES:
        return Finding(
            check="open files",
            level="warning",
            detail=f"{detail}; Ray advises {OPEN_FILES}",
            remedy=f"as root: prlimit --pid $$ --nofile={OPEN_FILES}, or raise it in "
            "/etc/security/limits.conf",
        )
    return Finding(check="open files", level="ok", detail=detail)


def _ports() -> Finding:
    return _tried(
        "ports",
        f"free ones between {PORT_RANGE.start} and {PORT_RANGE.stop - 1}",
        lambda: free_port(set()),
    )
