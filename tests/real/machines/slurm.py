"""A real Slurm on this machine: one controller, and several slurmd that each stand for a node.

Debian's packages slurmctld, slurmd, slurm-client and munge, 22.05; no database daemon. To run a
command beside it:

    PYTHONPATH=tests:tests/real python tests/real/machines/slurm.py COMMAND...
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from waiting import wait_for

from machines import needs
from machines.needs import SYSTEM_PATH
from sunspot.node.free_ports import free_port

NEED_SLURM = "SUNSPOT_TESTS_NEED_SLURM"
PROGRAMS = {
    "slurmctld": "slurmctld",
    "slurmd": "slurmd",
    "sbatch": "slurm-client",
    "munged": "munge",
}
NODES = ("n1", "n2", "n3")
NODE_CPUS, NODE_MEMORY_MB = 2, 4000
# The last node has a GPU that is only a file. By its weight, others are taken before it.
GPU_NODE = "n3"
MUNGE_FOLDERS = ("/run/munge", "/var/log/munge", "/var/lib/munge")
MUNGE_SOCKET = "/run/munge/munge.socket.2"
CONFIG = "SLURM_CONF"


@dataclass(frozen=True, kw_only=True)
class Slurm:
    """A Slurm that runs.

    Attributes:
        folder: its configuration, state and logs.
        variables: with which its commands find it.
    """

    folder: Path
    variables: Mapping[str, str]

    def __call__(self, *words: str, check: bool = True) -> str:
        """What one of its commands prints."""
        done = subprocess.run(
            words,
            env={**os.environ, **self.variables},
            capture_output=True,
            text=True,
            check=False,
        )
        if check:
            assert done.returncode == 0, f"{words}: {done.stderr}"
        return done.stdout

    def state(self, job: str) -> str:
        """A job's state, also after its end."""
        shown = self("squeue", "--noheader", "--states=all", f"--jobs={job}", "--format=%T")
        return shown.split("\n")[0]

    def set_node(self, name: str, state: str) -> None:
        """Sets a node down, or resumes it."""
        reason = ["reason=test"] if state == "down" else []
        self("scontrol", "update", f"nodename={name}", f"state={state}", *reason)


def need() -> None:
    """Skips the test where Slurm is not installed; in CI it fails."""
    needs.need(PROGRAMS, NEED_SLURM)


@contextlib.contextmanager
def slurm(first_job: int = 1) -> Iterator[Slurm]:
    """A Slurm of three nodes while the block runs.

    Args:
        first_job: the id of its first job. Ports come from the ids, so two Slurms on one machine
            need different ones.
    """
    with tempfile.TemporaryDirectory(prefix="slurm-") as name, contextlib.ExitStack() as daemons:
        folder = Path(name)
        _start_munge(daemons, folder)
        ports = _ports(len(NODES) + 1)
        (folder / "slurm.conf").write_text(_config(folder, ports, first_job))
        (folder / "fake-gpu0").touch()
        (folder / "gres.conf").write_text(
            f"NodeName={GPU_NODE} Name=gpu Type=t4 File={folder}/fake-gpu0\n"
        )
        made = Slurm(folder=folder, variables={CONFIG: str(folder / "slurm.conf")})
        _start(daemons, folder, "slurmctld", "-D", "-i", "-f", str(folder / "slurm.conf"))
        for node in NODES:
            _start(daemons, folder, "slurmd", "-D", "-N", node, "-f", str(folder / "slurm.conf"))
        wait_for("the nodes", lambda: _idle(made) == len(NODES), not_yet=(AssertionError,))
        try:
            yield made
        finally:
            made("scancel", "--user", "root", check=False)
            wait_for("every job's end", lambda: not made("squeue", "--noheader"), 300)


def _idle(made: Slurm) -> int:
    shown = made("sinfo", "--noheader", "--Node", "--partition=main", "--format=%t")
    return shown.split().count("idle")


def _ports(count: int) -> list[int]:
    found: list[int] = []
    for _ in range(count):
        found.append(free_port(set(found)))
    return found


def _config(folder: Path, ports: list[int], first_job: int) -> str:
    host = socket.gethostname()
    nodes = [
        f"NodeName={name} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs={NODE_CPUS} "
        f"RealMemory={NODE_MEMORY_MB}" + (" Gres=gpu:t4:1 Weight=2" if name == GPU_NODE else "")
        for name, port in zip(NODES, ports[1:], strict=True)
    ]
    lines = [
        "ClusterName=test",
        f"SlurmctldHost={host}(127.0.0.1)",
        f"SlurmctldPort={ports[0]}",
        "SlurmUser=root",
        "SlurmdUser=root",
        "AuthType=auth/munge",
        # Also how long a job that is put back into the queue waits there, 120 s by default.
        "AuthInfo=cred_expire=10",
        f"FirstJobId={first_job}",
        f"StateSaveLocation={folder}/state",
        f"SlurmdSpoolDir={folder}/spool-%n",
        f"SlurmdPidFile={folder}/%n.pid",
        f"SlurmctldPidFile={folder}/slurmctld.pid",
        f"SlurmdLogFile={folder}/%n.log",
        f"SlurmctldLogFile={folder}/slurmctld.log",
        "ProctrackType=proctrack/linuxproc",
        "TaskPlugin=task/none",
        "SelectType=select/cons_tres",
        "SelectTypeParameters=CR_Core",
        "GresTypes=gpu",
        "ReturnToService=2",
        "MpiDefault=none",
        "SchedulerType=sched/backfill",
        # Heterogeneous jobs are started only by the backfill scheduler, every 30 s by default.
        "SchedulerParameters=bf_interval=1,sched_interval=2",
        "PreemptType=preempt/partition_prio",
        "PreemptMode=REQUEUE",
        "KillWait=20",
        *nodes,
        f"PartitionName=main Nodes={','.join(NODES)} Default=YES MaxTime=60 PriorityTier=1",
        f"PartitionName=urgent Nodes={','.join(NODES)} MaxTime=60 PriorityTier=10 PreemptMode=OFF",
    ]
    (folder / "state").mkdir()
    return "\n".join([*lines, ""])


def _start_munge(daemons: contextlib.ExitStack, folder: Path) -> None:
    if _munge_answers():
        return
    for own in MUNGE_FOLDERS:
        Path(own).mkdir(parents=True, exist_ok=True)
        shutil.chown(own, "munge", "munge")
    _start(daemons, folder, "munged", "--foreground", user="munge")
    wait_for("munge", _munge_answers)


def _munge_answers() -> bool:
    # The socket of one that was killed is still there.
    with socket.socket(socket.AF_UNIX) as probe, contextlib.suppress(OSError):
        probe.connect(MUNGE_SOCKET)
        return True
    return False


def _start(
    daemons: contextlib.ExitStack,
    folder: Path,
    program: str,
    *arguments: str,
    user: str | None = None,
) -> None:
    found = shutil.which(program, path=SYSTEM_PATH)
    assert found
    with (folder / "daemons.log").open("a") as log:
        process = subprocess.Popen(
            [found, *arguments], stdout=log, stderr=log, user=user, group=user
        )
    daemons.callback(_end, process)


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(20)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


if __name__ == "__main__":
    with slurm() as running:
        sys.exit(subprocess.call(sys.argv[1:], env={**os.environ, **running.variables}))
