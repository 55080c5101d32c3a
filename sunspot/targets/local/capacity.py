"""What this machine can hold: nodes by its memory, and files by the free space of its disks."""

from __future__ import annotations

import errno
import os
import pwd
import shutil
import stat
from pathlib import Path
from typing import Literal

import psutil

from sunspot.errors import SunspotError, UsageError
from sunspot.node.local.folder import HEAD, ClusterFolder
from sunspot.ray.resources import GIB
from sunspot.spec import RayNodeConfig
from sunspot.stack import Stack
from sunspot.targets.records import STATE_DIRECTORY_VARIABLE

# Memory of Ray's own processes (raylet, agents; on the head also the GCS and the dashboard): the
# proportional set sizes of an idle cluster, 2.60.
WORKER_GIB, HEAD_GIB = 0.2, 1.0

# More than any machine has. Up to that, a node may claim more than this machine has, since its
# resources are logical.
NODE_LIMIT_GIB = 32 * 1024

MIB = 2**20
# Ray's logs and sockets take a few MiB a node, and Ray refuses to store objects on a disk that is
# 95 % full.
Disk = Literal["temp", "state"]
DISKS: tuple[Disk, ...] = ("temp", "state")
FREE_MIB: dict[Disk, int] = {"temp": 100, "state": 10}

# A load above this, per core, over the last minute: nodes then start slower than Ray allows for.
BUSY_LOAD = 2.0


def check(stack: Stack) -> None:
    """Checks that this machine can hold the stack's nodes.

    Raises:
        UsageError: it has too little memory for their processes, or one claims more than any
            machine has.
    """
    cluster = stack.cluster
    nodes = {HEAD: cluster.head_node}
    nodes |= {group.name: group.worker_nodes for group in cluster.scaling_groups}
    for name, node in nodes.items():
        _check_memory(name, node)
    workers = _first_workers(stack)
    fit = max(0, int((_host_gib() - HEAD_GIB) / WORKER_GIB))
    if workers > fit:
        raise UsageError(
            f"{workers} workers (the sum of min_workers in Pulumi.{stack.name}.yaml) are more than "
            f"this machine can hold: with {_host_gib():.0f} GiB of memory it can run {fit}. Lower "
            "min_workers, or use another target"
        )


def needed_gib(stack: Stack) -> float:
    """The memory of Ray's own processes for the nodes that `up` starts, in GiB."""
    return HEAD_GIB + WORKER_GIB * _first_workers(stack)


def _first_workers(stack: Stack) -> int:
    return sum(group.min_workers for group in stack.cluster.scaling_groups)


def _check_memory(name: str, node: RayNodeConfig) -> None:
    if node.memory_gb > NODE_LIMIT_GIB:
        raise UsageError(
            f"memory_gb of {name!r} is {node.memory_gb:g}, but no machine has more than "
            f"{NODE_LIMIT_GIB}. This machine has {_host_gib():.0f} GiB"
        )


def check_space(folder: ClusterFolder) -> None:
    """Checks that there is room for a cluster's files. Raises as `check_disk` does."""
    for use in DISKS:
        check_disk(folder, use)


def check_disk(folder: ClusterFolder, use: Disk) -> None:
    """Checks that there is room for the files of one kind.

    Raises:
        UsageError: the disk is full; the message names the folder and what is free.
    """
    ways_out = {"temp": "", "state": f", or set {STATE_DIRECTORY_VARIABLE} to a folder elsewhere"}
    path = folder.temp_dir if use == "temp" else folder.path
    free, needed = free_mib(path), FREE_MIB[use]
    if free < needed:
        raise UsageError(
            f"the disk of {existing(path)} is full: {free:.0f} MiB are free, and a cluster "
            f"needs {needed} MiB there. Free some space{ways_out[use]}"
        )


def check_temp_folder(folder: ClusterFolder) -> None:
    """Checks that the folder of all clusters' sockets, if it exists, is this user's.

    Raises:
        SunspotError: somebody else made it.
    """
    parent = folder.temp_dir.parent
    try:
        found = parent.lstat()
    except FileNotFoundError:
        return
    if stat.S_ISLNK(found.st_mode) or found.st_uid != os.getuid():
        raise SunspotError(
            f"{parent} is for the sockets of your clusters, but {_owner(parent)} has made it. Only "
            f"they or an administrator can remove it: sudo rm -r {parent}"
        )


def _owner(path: Path) -> str:
    uid = path.lstat().st_uid
    try:
        return f"user {pwd.getpwuid(uid).pw_name!r}"
    except KeyError:
        return f"the user with id {uid}"


def explained(folder: ClusterFolder, error: SunspotError) -> SunspotError:
    """The error of a start that failed, with its cause where that is this machine."""
    if os.strerror(errno.ENOSPC) in str(error) or min(map(free_mib, _folders(folder))) < 1:
        full = min(_folders(folder), key=free_mib)
        return SunspotError(f"the disk of {existing(full)} is full. {error}")
    load, cores = os.getloadavg()[0], os.cpu_count() or 1
    if load > BUSY_LOAD * cores:
        return SunspotError(
            f"{error}\nThis machine is busy: {load:.0f} processes wanted its {cores} cores in the "
            "last minute. Try again when there is less to do, or with fewer workers"
        )
    return error


def _folders(folder: ClusterFolder) -> tuple[Path, Path]:
    return folder.temp_dir, folder.path


def free_mib(path: Path) -> float:
    try:
        return shutil.disk_usage(path).free / MIB
    except (FileNotFoundError, NotADirectoryError):
        return free_mib(path.parent)


def existing(path: Path) -> Path:
    """The path, or the nearest folder above it that exists."""
    return path if path.exists() else existing(path.parent)


def _host_gib() -> float:
    return psutil.virtual_memory().total / GIB
