"""A stand-in for Slurm's commands, called by their names: sbatch, squeue, scancel and so on.

It behaves as the man pages of Slurm 22.05 say, as far as Sunspot relies on it:

sbatch(1)    reads a script from stdin; options on the command line override #SBATCH lines; hetjob
             separates components; --parsable prints the id; a partition that does not exist is
             refused, a time over the partition's limit is accepted and stays pending
srun(1)      runs one task on each of the chosen nodes of a component (--relative, --het-group);
             returns the highest exit code
scancel(1)   SIGTERM for the script and its tasks, SIGKILL later; --batch --signal only for the
             script; a job that has ended is an error
scontrol(1)  show job, requeue: the job ends and its script begins again, SLURM_RESTART_COUNT grows
squeue(1)    the wanted format; ended jobs too, with --states=all
sinfo(1)     a line for each partition

The cluster is cluster.json in the folder that STAND_IN_SLURM names: {partition: {"limit", "nodes",
"cpus", "memory", "gres"}}, the first is the default. Jobs begin at once, unless a file `hold` is
there. Nodes that a file `blind` names see other files. Nothing is isolated: all are this machine.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

FOLDER = "STAND_IN_SLURM"
COMMANDS = ("sbatch", "squeue", "scancel", "scontrol", "sacct", "sinfo", "srun")
KILL_WAIT_S = 60.0
POLL_S = 0.05

Job = dict[str, Any]


def install(folder: Path, partitions: dict[str, dict[str, Any]]) -> dict[str, str]:
    """Makes the commands in a folder; returns the variables with which they are found.

    A partition that leaves something out has two nodes of 2 CPUs and 4000 MiB, and no limit.
    """
    tools = folder / "bin"
    tools.mkdir(parents=True)
    usual = {"limit": "infinite", "nodes": ["n1", "n2"], "cpus": 2, "memory": 4000, "gres": ""}
    cluster = {name: usual | given for name, given in partitions.items()}
    (folder / "cluster.json").write_text(json.dumps(cluster))
    for name in COMMANDS:
        command = shlex.join([sys.executable, "-P", str(Path(__file__).resolve()), name])
        (tools / name).write_text(f'#!/bin/sh\nexec {command} "$@"\n')
        (tools / name).chmod(0o755)
    return {FOLDER: str(folder), "PATH": f"{tools}{os.pathsep}{os.environ['PATH']}"}


def jobs(folder: Path) -> list[Job]:
    """All jobs that there ever were, the first first."""
    files = (folder / "jobs").glob("*.json")
    return sorted((json.loads(file.read_text()) for file in files), key=lambda job: job["id"])


# Records


def _folder() -> Path:
    return Path(os.environ[FOLDER])


def _read(number: int) -> Job:
    try:
        return json.loads((_folder() / "jobs" / f"{number}.json").read_text())
    except FileNotFoundError:
        _fail("Invalid job id specified")


def _write(job: Job) -> None:
    file = _folder() / "jobs" / f"{job['id']}.json"
    file.parent.mkdir(exist_ok=True)
    new = file.with_suffix(f".{os.getpid()}")
    new.write_text(json.dumps(job))
    new.replace(file)


@contextlib.contextmanager
def _changed(number: int) -> Iterator[Job]:
    """A job, written back after the block."""
    with (_folder() / "lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        job = _read(number)
        yield job
        _write(job)


def _new_id() -> int:
    """The next job's id: of all stand-ins on this machine, since ports come from it."""
    counter = Path(tempfile.gettempdir()) / f"stand-in-slurm-{os.getuid()}"
    with counter.open("a+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        number = int(file.read() or "16") + 1
        file.truncate(0)
        file.write(str(number))
    return number


def _fail(text: str) -> NoReturn:
    print(f"{sys.argv[1]}: error: {text}", file=sys.stderr)
    sys.exit(1)


# Options


def _options(words: list[str]) -> dict[str, str]:
    """Long options as name -> value; "" for those without one."""
    found = {}
    for word in words:
        name, _, value = word.removeprefix("--").partition("=")
        found[name] = value
    return found


def _components(script: str, given: dict[str, str]) -> list[dict[str, str]]:
    parts: list[list[str]] = [[]]
    for line in script.splitlines():
        if line and not line.startswith("#"):
            break
        if line == "#SBATCH hetjob":
            parts.append([])
        elif line.startswith("#SBATCH "):
            parts[-1] += shlex.split(line.removeprefix("#SBATCH "))
    read = [_options(part) for part in parts]
    return [read[0] | given, *read[1:]]


def _seconds(limit: str) -> float:
    if limit == "infinite":
        return float("inf")
    hours, minutes, seconds = map(int, limit.split(":"))
    return hours * 3600 + minutes * 60 + seconds


# Commands


def sbatch(arguments: list[str]) -> int:
    given = _options([word for word in arguments if word.startswith("--")])
    script = sys.stdin.read()
    components = _components(script, given)
    cluster = json.loads((_folder() / "cluster.json").read_text())
    nodes, pending = [], ""
    taken: set[str] = set()
    for one in components:
        name = one.setdefault("partition", next(iter(cluster)))
        if name not in cluster:
            print(f"sbatch: error: invalid partition specified: {name}", file=sys.stderr)
            _fail("Batch job submission failed: Invalid partition name specified")
        if one.get("account") == "nobody":
            _fail("Batch job submission failed: Invalid account specified")
        if "time" in one and _seconds(one["time"]) > _seconds(cluster[name]["limit"]):
            pending = "PartitionTimeLimit"
        free = [node for node in cluster[name]["nodes"] if node not in taken]
        chosen = free[: int(one.get("nodes", "1"))]
        taken |= set(chosen)
        nodes.append(chosen)
    first, _, last = given.get("array", components[0].get("array", "")).partition("-")
    leader = 0
    for task in range(int(first or 1), int(last or first or 1) + 1):
        number = _new_id()
        leader = leader or number
        job = {
            "id": number,
            "array": f"{leader}_{task}" if first else "",
            "name": components[0].get("job-name", "sbatch"),
            "components": components,
            "nodes": nodes,
            "script": script,
            "directory": str(Path.cwd()),
            "state": "PENDING",
            "reason": pending or "Resources",
            "code": "0:0",
            "pid": 0,
            "restarts": 0,
            "cancelled": False,
            "requeued": False,
        }
        _write(job)
        if not pending:
            subprocess.Popen(
                [sys.executable, "-P", __file__, "_run", str(number)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
    print(leader)
    return 0


def squeue(arguments: list[str]) -> int:
    given = _options(arguments)
    names = given["name"].split(",")
    for job in jobs(_folder()):
        if job["name"] not in names:
            continue
        for offset in range(len(job["components"])):
            shown = job["array"] or str(job["id"])
            if len(job["components"]) > 1:
                shown = f"{job['id']}+{offset}"
            values = {
                "%A": str(job["id"] + offset if len(job["components"]) > 1 else job["id"]),
                "%i": shown,
                "%j": job["name"],
                "%T": job["state"],
                "%r": job["reason"],
            }
            print(re.sub("%[A-Za-z]", lambda found: values[found[0]], given["format"]))  # noqa: B023
    return 0


def scancel(arguments: list[str]) -> int:
    given = _options([word for word in arguments if word.startswith("--")])
    numbers = [int(word) for word in arguments if not word.startswith("--")]
    ours = [
        job
        for job in jobs(_folder())
        if job["id"] in numbers or job["array"].partition("_")[0] in map(str, numbers)
    ]
    if not ours:
        _fail(f"Kill job error on job id {numbers}: Invalid job id specified")
    for job in ours:
        if job["state"] not in {"PENDING", "RUNNING"}:
            over = "Job/step already completing or completed"
            print(f"scancel: error: Kill job error on job id {job['id']}: {over}", file=sys.stderr)
        elif "signal" in given:
            os.kill(job["pid"], getattr(signal, f"SIG{given['signal']}"))
        else:
            with _changed(job["id"]) as changed:
                changed["cancelled"] = True
                if changed["state"] == "PENDING":
                    changed["state"] = "CANCELLED"
    return 0


def scontrol(arguments: list[str]) -> int:
    number = int(arguments[-1])
    if arguments[0] == "requeue":
        with _changed(number) as job:
            job["requeued"] = True
        return 0
    job = _read(number)
    print(f"JobId={number} JobName={job['name']} JobState={job['state']} ExitCode={job['code']}")
    return 0


def sacct(_arguments: list[str]) -> int:
    _fail("Slurm accounting storage is disabled")


def sinfo(arguments: list[str]) -> int:
    given = _options(arguments)
    if "version" in given:
        print("slurm 22.05.8")
        return 0
    cluster = json.loads((_folder() / "cluster.json").read_text())
    for number, (name, has) in enumerate(cluster.items()):
        values = {
            "%P": name + ("" if number else "*"),
            "%l": has["limit"],
            "%D": str(len(has["nodes"])),
            "%c": str(has["cpus"]),
            "%m": str(has["memory"]),
            "%G": has["gres"] or "(null)",
        }
        print(re.sub("%[A-Za-z]", lambda found: values[found[0]], given["format"]))  # noqa: B023
    return 0


def srun(arguments: list[str]) -> int:
    """Runs the tasks of one step; they get a SIGTERM when it does."""
    end = next(at for at, word in enumerate(arguments) if not word.startswith("--"))
    given, command = _options(arguments[:end]), arguments[end:]
    number = int(os.environ["SLURM_JOB_ID"])
    job, component = _read(number), int(given.get("het-group", "0"))
    first = int(given.get("relative", "0"))
    nodes = job["nodes"][component][first : first + int(given["nodes"])]
    gres = job["components"][component].get("gres", "")
    tasks = [
        subprocess.Popen(
            _seen_from(node, command),
            env={
                **os.environ,
                "SLURMD_NODENAME": node,
                "SLURM_PROCID": str(rank),
                "SLURM_CPUS_PER_TASK": given["cpus-per-task"],
                "SLURM_CPUS_ON_NODE": given["cpus-per-task"],
                **({"CUDA_VISIBLE_DEVICES": _devices(gres)} if gres else {}),
            },
        )
        for rank, node in enumerate(nodes)
    ]
    signal.signal(signal.SIGTERM, lambda *_: [task.terminate() for task in tasks])
    codes = [task.wait() for task in tasks]
    return max(code if code >= 0 else 128 - code for code in codes)


def _seen_from(node: str, command: list[str]) -> list[str]:
    """The command on a node; where its file system is another one, paths lead nowhere."""
    blind = _folder() / "blind"
    if blind.exists() and node in blind.read_text().split():
        return [*command[:3], *(word.replace("/", "/elsewhere/", 1) for word in command[3:])]
    return command


def _devices(gres: str) -> str:
    return ",".join(map(str, range(int(gres.rpartition(":")[2]))))


# The job itself


def _run(arguments: list[str]) -> int:
    number = int(arguments[0])
    while (_folder() / "hold").exists() and not _read(number)["cancelled"]:
        time.sleep(POLL_S)
    while not _read(number)["cancelled"]:
        code = _run_once(number)
        with _changed(number) as job:
            again = job["requeued"] and not job["cancelled"]
            job["requeued"] = False
            job["restarts"] += 1
            if not again:
                job["state"] = _final(job, code)
                job["reason"] = "None"
                job["code"] = f"{code}:0" if code >= 0 else f"0:{-code}"
        if not again:
            break
    return 0


def _final(job: Job, code: int) -> str:
    if job["cancelled"]:
        return "CANCELLED"
    return "COMPLETED" if code == 0 else "FAILED"


def _run_once(number: int) -> int:
    job = _read(number)
    options = job["components"][0]
    output = Path(job["directory"]) / options["output"].replace("%j", str(number)).replace(
        "%A", job["array"].partition("_")[0]
    ).replace("%a", job["array"].partition("_")[2])
    script = _folder() / "jobs" / f"{number}.sh"
    script.write_text(job["script"])
    own = {
        "SLURM_JOB_ID": str(number),
        "SLURM_JOB_NUM_NODES": str(len(job["nodes"][0])),
        "SLURM_SUBMIT_DIR": job["directory"],
        "SLURM_RESTART_COUNT": str(job["restarts"]),
    }
    with output.open("ab") as printed:
        batch = subprocess.Popen(
            ["/bin/bash", str(script)],
            cwd=job["directory"],
            env=os.environ | own,
            stdin=subprocess.DEVNULL,
            stdout=printed,
            stderr=printed,
            start_new_session=True,
        )
    with _changed(number) as running:
        running |= {"state": "RUNNING", "reason": "None", "pid": batch.pid}
    terminated_at = None
    while batch.poll() is None:
        now = _read(number)
        if terminated_at is None and (now["cancelled"] or now["requeued"]):
            terminated_at = time.monotonic()
            _signal_all(batch.pid, signal.SIGTERM)
        if terminated_at is not None and time.monotonic() - terminated_at > KILL_WAIT_S:
            _signal_all(batch.pid, signal.SIGKILL)
        time.sleep(POLL_S)
    _signal_all(batch.pid, signal.SIGKILL)
    return batch.returncode


def _signal_all(session: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(session, number)


if __name__ == "__main__":
    sys.exit(globals()[sys.argv[1]](sys.argv[2:]))
