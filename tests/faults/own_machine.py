"""The machine that machine.sh makes: a census of all that exists on it, and its disks."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil
from waiting import wait_for

from sunspot.node.local.folder import ClusterFolder
from sunspot.node.processes import is_alive

DISK_VARIABLE = "SUNSPOT_TESTS_DISK"
"""In the environment on such a machine only: where the user's disk is mounted."""

REPOSITORY = Path(__file__).parents[2]

# Of a running cluster these come and go: Ray's pool of workers, and the clock of a job's guard
# (ray/dashboard/modules/job/job_supervisor.py, 2.60).
PASSING = ("ray::IDLE", "sleep")

Census = dict[str, str]
"""Each thing by what it is told apart by, with a text for people."""


@dataclass(frozen=True)
class Machine:
    """Nothing but the tests and what they start is on it.

    Attributes:
        disk: the disk with the user's home, project and state directory, mounted in /tmp.
    """

    disk: Path

    @property
    def tmp(self) -> Path:
        return self.disk.parent

    def census(self, up: Collection[ClusterFolder] = ()) -> Census:
        """Every process, every listening socket, and every file in /tmp and /dev/shm.

        Args:
            up: clusters that are up. Left out is what such a cluster changes by itself: the files
                in its folders, and Ray's pool of workers.
        """
        folders = [folder for one in up for folder in (one.path, one.temp_dir)]
        processes = [
            process
            for process in psutil.process_iter()
            if _runs(process) and not (up and kind(process) in PASSING)
        ]
        return {
            **{f"process {p.pid} of {p.create_time()}": _called(p) for p in processes},
            **_sockets({process.pid for process in processes}),
            **{str(path): "" for path in self._files([*folders, REPOSITORY])},
        }

    def _files(self, without: Collection[Path]) -> Iterator[Path]:
        for top in (self.tmp, Path("/dev/shm")):  # noqa: S108 - this machine's own
            for folder, folders, files in os.walk(top):
                paths = {name: Path(folder, name) for name in folders}
                folders[:] = [name for name, path in paths.items() if path not in without]
                yield from (Path(folder, name) for name in (*folders, *files))

    def sweep(self, before: Census, up: Collection[ClusterFolder] = ()) -> None:
        """Ends and removes whatever was not there before, so that the next test can begin."""
        while new := self.census(up).keys() - before.keys():
            for one in new:
                if one.startswith("process "):
                    with contextlib.suppress(psutil.Error):
                        psutil.Process(int(one.split()[1])).kill()
            for path in sorted((Path(one) for one in new if one.startswith("/")), reverse=True):
                with contextlib.suppress(OSError):
                    path.rmdir() if path.is_dir() and not path.is_symlink() else path.unlink()

    @contextlib.contextmanager
    def full(self, mount: Path) -> Iterator[None]:
        """While the block runs, one of the machine's disks is full: /tmp, or the user's."""
        before = os.statvfs(mount)
        try:
            wait_for(f"{mount} to be full", lambda: _shrink(mount), not_yet=(OSError,))
            yield
        finally:
            _resize(mount, before.f_blocks * before.f_frsize)


def read_only(folder: Path, command: Sequence[str]) -> list[str]:
    """The command in a mount namespace of its own, in which it cannot write to the folder."""
    script = 'mount --bind "$0" "$0" && mount -o remount,ro,bind "$0" && exec "$@"'
    return ["unshare", "--mount", "sh", "-c", script, str(folder), *command]


def differences(before: Census, after: Census) -> list[str]:
    """What is there only before, or only after; a line each."""
    return [
        *(f"new: {one} {after[one]}".rstrip() for one in sorted(after.keys() - before.keys())),
        *(f"gone: {one} {before[one]}".rstrip() for one in sorted(before.keys() - after.keys())),
    ]


def kind(process: psutil.Process) -> str:
    """What a process is, by its title or its script: "raylet", "ray::IDLE", "log_monitor.py"."""
    with contextlib.suppress(psutil.Error):
        first, *words = process.cmdline() or [""]
        if first.startswith("ray"):  # a title, of which Ray's dashboard adds the former one
            return first.partition(" ")[0]
        scripts = [word for word in words if word.endswith(".py")]
        return Path(scripts[0]).name if scripts else process.name()
    return ""


def kinds(processes: Collection[psutil.Process]) -> Counter[str]:
    """How many processes of each kind there are, without those that come and go."""
    found = Counter(map(kind, filter(is_alive, processes)))
    return Counter({name: count for name, count in found.items() if name not in (*PASSING, "")})


def _sockets(pids: Collection[int]) -> Census:
    """The listening sockets of these processes, and those that are of no process."""
    found = {}
    for one in psutil.net_connections("inet"):
        listens = one.status == psutil.CONN_LISTEN or (
            one.type == socket.SOCK_DGRAM and not one.raddr
        )
        if listens and (one.pid is None or one.pid in pids):
            kind_of = "TCP" if one.type == socket.SOCK_STREAM else "UDP"
            address = ":".join(map(str, one.laddr))
            found[f"{kind_of} {address}"] = f"of process {one.pid}"
    return found


def _runs(process: psutil.Process) -> bool:
    """Whether a process lives, and is not just ending: then it has no command line any more."""
    with contextlib.suppress(psutil.Error):
        return is_alive(process) and bool(process.cmdline())
    return False


def _called(process: psutil.Process) -> str:
    with contextlib.suppress(psutil.Error):
        return f"({' '.join(process.cmdline())[:100]})"
    return "(ended)"


def _shrink(mount: Path) -> bool:
    """Makes a disk as small as its content."""
    now = os.statvfs(mount)
    used = (now.f_blocks - now.f_bfree) * now.f_frsize
    _resize(mount, used)
    return os.statvfs(mount).f_bavail == 0


def _resize(mount: Path, size: int) -> None:
    done = subprocess.run(
        ["mount", "-o", f"remount,size={size}", str(mount)],  # noqa: S607
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise OSError(done.stderr.strip())
