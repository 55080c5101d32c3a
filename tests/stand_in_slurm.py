"""A stand-in for Slurm's commands, called by their names: sbatch, squeue, scancel and so on.

It behaves as the man pages of Slurm 22.05 say, as far as Sunspot relies on it:

sbatch(1)    reads a script from stdin; options on the command line override SBATCH_* variables, and
             those the #SBATCH lines; hetjob separates components; --parsable prints the id; a
             partition that does not exist is refused, a time over its limit stays pending; --mem is
             refused where nodes have no RealMemory, which sinfo shows as 1
             (github.com/aws/aws-parallelcluster, issues 1517 and 2198); with SLURM_CLUSTERS the id
             is "17;CLUSTER"; the text of a file `greeting` comes before it
             (github.com/llnl/maestrowf, issue 441)
srun(1)      runs one task on each of the chosen nodes of a component (--relative, --het-group);
             returns the highest exit code; refuses SLURM_MEM_PER_CPU beside --mem, as in a job
             that was submitted from another one (github.com/snakemake/snakemake, issue 2230)
scancel(1)   SIGTERM for the script and its tasks, SIGKILL later; --batch --signal only for the
             script; a job that has ended, and a signal to one that waits, is an error
scontrol(1)  show job, requeue: the job ends and its script begins again, SLURM_RESTART_COUNT grows
squeue(1)    the wanted format; ended jobs too, with --states=all; the elements of an array that
             wait in one line, unless --array is given; only the partition SQUEUE_PARTITION
sinfo(1)     a line for each partition, or only for SINFO_PARTITION

The cluster is cluster.json in the folder that STAND_IN_SLURM names: {partition: {"limit", "nodes",
"cpus", "memory", "gres"}}, the first is the default. Jobs begin at once, unless a file `hold` is
there; with a file `boot` their nodes are still booting. Nodes that a file `blind` names see other
files. As often as a file `busy` says, the controller does not answer. Nothing is isolated: all are
this machine.
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
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

FOLDER = "STAND_IN_SLURM"
COMMANDS = ("sbatch", "squeue", "scancel", "scontrol", "sacct", "sinfo", "srun")
# -P: this folder has packages that are called as Ray is.
BEGIN = "import sys; sys.path.append({!r}); import stand_in_slurm_job; stand_in_slurm_job.run({})"

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


def folder() -> Path:
    return Path(os.environ[FOLDER])


def read(number: int) -> Job:
    try:
        return json.loads((folder() / "jobs" / f"{number}.json").read_text())
    except FileNotFoundError:
        _fail("Invalid job id specified")


def write(job: Job) -> None:
    file = folder() / "jobs" / f"{job['id']}.json"
    file.parent.mkdir(exist_ok=True)
    new = file.with_suffix(f".{os.getpid()}")
    new.write_text(json.dumps(job))
    new.replace(file)


@contextlib.contextmanager
def changed(number: int) -> Iterator[Job]:
    """A job, written back after the block."""
    with (folder() / "lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        job = read(number)
        yield job
        write(job)


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
    variables = {
        name.removeprefix("SBATCH_").lower().replace("_", "-"): value
        for name, value in os.environ.items()
        if name.startswith("SBATCH_")
    }
    first, *others = (one | variables for one in read)
    return [first | given, *others]


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
    cluster = json.loads((folder() / "cluster.json").read_text())
    nodes, pending = [], ""
    taken: set[str] = set()
    for one in components:
        name = one.setdefault("partition", next(iter(cluster)))
        if name not in cluster:
            print(f"sbatch: error: invalid partition specified: {name}", file=sys.stderr)
            _fail("Batch job submission failed: Invalid partition name specified")
        if one.get("account") == "nobody":
            _fail(
                "Batch job submission failed: Invalid account or account/partition combination "
                "specified"
            )
        if "mem" in one and cluster[name]["memory"] <= 1:
            print("sbatch: error: Memory specification can not be satisfied", file=sys.stderr)
            _fail("Batch job submission failed: Requested node configuration is not available")
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
        write(job)
        if not pending:
            subprocess.Popen(
                [sys.executable, "-P", "-c", BEGIN.format(str(Path(__file__).parent), number)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
    greeting, several = folder() / "greeting", os.environ.get("SLURM_CLUSTERS")
    if greeting.exists():
        print(greeting.read_text())
    print(f"{leader};{several}" if several else leader)
    return 0


def squeue(arguments: list[str]) -> int:
    given = _options(arguments)
    names = given["name"].split(",")
    together: set[str] = set()
    for job in jobs(folder()):
        partition = job["components"][0]["partition"]
        if job["name"] not in names or not _is_shown(partition, "SQUEUE_PARTITION"):
            continue
        for offset in range(len(job["components"])):
            shown = job["array"] or str(job["id"])
            if len(job["components"]) > 1:
                shown = f"{job['id']}+{offset}"
            if job["array"] and job["state"] == "PENDING" and "array" not in given:
                shown = f"{job['array'].partition('_')[0]}_[...]"
                if shown in together:
                    continue
                together.add(shown)
            values = {"%i": shown, "%j": job["name"], "%T": job["state"], "%r": job["reason"]}
            print(re.sub("%[A-Za-z]", lambda found: values[found[0]], given["format"]))  # noqa: B023
    return 0


def _is_shown(partition: str, variable: str) -> bool:
    return os.environ.get(variable, partition) == partition


def scancel(arguments: list[str]) -> int:
    given = _options([word for word in arguments if word.startswith("--")])
    wanted = {word for word in arguments if not word.startswith("--")}
    ours = [
        job
        for job in jobs(folder())
        if wanted & {str(job["id"]), job["array"], job["array"].partition("_")[0]}
    ]
    if not ours:
        _fail(f"Kill job error on job id {wanted}: Invalid job id specified")
    for job in ours:
        problem = f"scancel: error: Kill job error on job id {job['id']}: "
        if job["state"] not in {"PENDING", "CONFIGURING", "RUNNING"}:
            print(problem + "Job/step already completing or completed", file=sys.stderr)
        elif "signal" in given and job["state"] == "PENDING":
            _fail(f"Kill job error on job id {job['id']}: Job is pending execution")
        elif "signal" in given:
            with contextlib.suppress(ProcessLookupError):  # it is about to be told as ended
                os.kill(job["pid"], getattr(signal, f"SIG{given['signal']}"))
        else:
            with changed(job["id"]) as now:
                now["cancelled"] = True
                if now["state"] != "RUNNING":
                    now["state"] = "CANCELLED"
    return 0


def scontrol(arguments: list[str]) -> int:
    number = int(arguments[-1])
    if arguments[0] == "requeue":
        with changed(number) as job:
            job["requeued"] = True
        return 0
    job = read(number)
    print(f"JobId={number} JobName={job['name']} JobState={job['state']} ExitCode={job['code']}")
    return 0


def sacct(_arguments: list[str]) -> int:
    _fail("Slurm accounting storage is disabled")


def sinfo(arguments: list[str]) -> int:
    given = _options(arguments)
    if "version" in given:
        print("slurm 22.05.8")
        return 0
    cluster = json.loads((folder() / "cluster.json").read_text())
    for number, (name, has) in enumerate(cluster.items()):
        if not _is_shown(name, "SINFO_PARTITION"):
            continue
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
    if ":" in arguments:  # "Heterogeneous Job Support": the command's own arguments too
        _fail("the stand-in knows no heterogeneous steps")
    end = next(at for at, word in enumerate(arguments) if not word.startswith("--"))
    given, command = _options(arguments[:end]), arguments[end:]
    if "mem" in given and "SLURM_MEM_PER_CPU" in os.environ:
        _fail(
            "SLURM_MEM_PER_CPU, SLURM_MEM_PER_GPU, and SLURM_MEM_PER_NODE are mutually exclusive."
        )
    number = int(os.environ["SLURM_JOB_ID"])
    job, component = read(number), int(given.get("het-group", "0"))
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
    if node in blind():
        return [*command[:3], *(word.replace("/", "/elsewhere/", 1) for word in command[3:])]
    return command


def blind() -> list[str]:
    file = folder() / "blind"
    return file.read_text().split() if file.exists() else []


def _devices(gres: str) -> str:
    return ",".join(map(str, range(int(gres.rpartition(":")[2]))))


def _answer() -> None:
    """Fails, as where the controller is busy, if a file says so."""
    busy = folder() / "busy"
    times = int(busy.read_text()) if busy.exists() else 0
    if times and not sys.argv[1].startswith("_"):
        busy.write_text(str(times - 1))
        _fail("Unable to contact slurm controller (connect failure)")


if __name__ == "__main__":
    _answer()
    sys.exit(globals()[sys.argv[1]](sys.argv[2:]))
