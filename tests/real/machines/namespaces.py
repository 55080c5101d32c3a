"""Namespaces of Linux that a machine is made of, and commands in them."""

import contextlib
import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
from ending import name_of
from leftovers import paths_below
from waiting import wait_for

from machines.processes import DEADLINE_S, StepError, checked, environment

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

# The end of what a machine boots with: the namespaces' first process, which takes up orphans.
WAIT = "exec tini -- sleep infinity\n"


@dataclass(frozen=True)
class Namespaces:
    """Processes, mounts, host name, network and so on of a machine. `pid` is its first process."""

    pid: int

    def command(self, *command: str | Path) -> list[str]:
        """The command line that runs a command on the machine."""
        enter = ["nsenter", f"--target={self.pid}", "--mount", "--uts", "--ipc", "--net", "--pid"]
        return [*enter, "--", *map(str, command)]

    def __call__(
        self, *command: str | Path, timeout: float = DEADLINE_S, stdin: str | None = None
    ) -> str:
        """Runs a command there; what it printed. Raises StepError unless it exits with 0."""
        env = environment(PATH=PATH)
        return checked(self.command(*command), env=env, timeout=timeout, stdin=stdin)

    def run(
        self, *command: str | Path, timeout: float = DEADLINE_S
    ) -> subprocess.CompletedProcess[str]:
        """Runs a command there, whatever its exit status."""
        return subprocess.run(
            self.command(*command),
            env=environment(PATH=PATH),
            capture_output=True,
            text=True,
            check=False,
            timeout=timeout,
        )

    def path(self, path: str) -> Path:
        """Where a file of the machine can be reached from here."""
        return Path(f"/proc/{self.pid}/root{path}")


@contextlib.contextmanager
def booted(boot: str, *arguments: str | Path, log: Path) -> Iterator[Namespaces]:
    """New namespaces, in which a script of sh has run; no process of them is left after the block.

    Args:
        boot: the script, which ends with `WAIT`.
        arguments: the script's.
        log: what the script prints.
    """
    command = ["unshare", "--mount", "--uts", "--ipc", "--net", "--pid", "--fork"]
    # Nothing is left either where this process is killed.
    command = ["setpriv", "--pdeathsig=KILL", *command, "--kill-child"]
    with log.open("wb") as output:
        holder = subprocess.Popen(
            [*command, "sh", "-c", boot, "sh", *map(str, arguments)],
            env=environment(),
            stdout=output,
            stderr=output,
            start_new_session=True,  # Ctrl-C is this process's to act on
        )
    try:
        yield Namespaces(
            wait_for(f"a machine, see {log}", lambda: _first_process(holder, log), DEADLINE_S)
        )
    finally:
        _end(holder)


def remove_cgroups(name: str) -> None:
    """Removes the control groups of that name, which have no process left."""
    # Those of others come and go meanwhile.
    for top in [path for path in paths_below(Path("/sys/fs/cgroup")) if path.name == name]:
        for folder, _, _ in os.walk(top, topdown=False):
            Path(folder).rmdir()


def _first_process(holder: subprocess.Popen[bytes], log: Path) -> int | None:
    if holder.poll() is not None:
        raise StepError(f"{holder.args} ended with {holder.returncode}: {log.read_text()}")
    started = [p for p in psutil.Process(holder.pid).children() if name_of(p) == "tini"]
    return started[0].pid if started else None


def _end(holder: subprocess.Popen[bytes]) -> None:
    """Ends the first process, and with it all others; returns when none is left."""
    with contextlib.suppress(psutil.Error):
        for process in psutil.Process(holder.pid).children():
            process.kill()
    holder.wait()
