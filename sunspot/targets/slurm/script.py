"""The batch script of a cluster: bash that needs nothing of Sunspot but what it carries itself.

It unpacks the nodes' code and plan into a folder that all nodes share, checks every node, starts
one task a node with srun, and ends with the exit code of the head's task. The behaviour of
Slurm that it relies on is that of the man pages sbatch(1) and srun(1), 22.05 and later.
"""

from __future__ import annotations

import base64
import io
import re
import shlex
import textwrap
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import sunspot
from sunspot.stack import Stack
from sunspot.targets.slurm import plan
from sunspot.targets.slurm.plan import Request
from sunspot.targets.slurm.settings import DEFAULT_SCRATCH, Container, Job, in_shell

NODE_SOURCES = Path(sunspot.__file__).parent / "node"
# The modules of sunspot/node that a node in a Slurm job runs. Nodes may have Python 3.10.
NODE_MODULES = (
    "__init__.py",
    "collector.py",
    "dashboard.py",
    "free_ports.py",
    "gcs.py",
    "leaving.py",
    "prctl.py",
    "raylet.py",
    "slurm/__init__.py",
    "slurm/addresses.py",
    "slurm/allocation.py",
    "slurm/head.py",
    "slurm/listeners.py",
    "slurm/main.py",
    "slurm/plan.py",
    "slurm/process_tree.py",
    "slurm/ray_node.py",
    "slurm/task.py",
    "slurm/worker.py",
)
_MAIN = """\
import sys

from sunspot.node.slurm.main import main

sys.exit(main(sys.argv[1:]))
"""
# The oldest date that a zip has, so that the same code gives the same bytes.
_EPOCH = (1980, 1, 1, 0, 0, 0)

TEMPLATES = Path(__file__).parent / "scripts"


@dataclass(frozen=True, kw_only=True)
class Submission:
    """One job as it is submitted.

    Attributes:
        name: the job's name.
        folder: the job's own folder as bash writes it, in double quotes.
        output: the file that the batch script prints into, as sbatch takes it.
        command: what runs on the head; None for the script's own arguments, and where there are
            none, the cluster stays until its time limit.
        requeue: whether Slurm may start the job again.
    """

    name: str
    folder: str
    output: str
    command: tuple[str, ...] | None = None
    requeue: bool = False


def manifest(stack: Stack) -> str:
    """The script for `sbatch`, which takes the command to run as its arguments."""
    job = plan.settings(stack)
    name = f"sunspot-{stack.name}"
    return batch(
        stack,
        Submission(
            name=name,
            folder=f"{in_shell(job.folder)}/{name}-$SLURM_JOB_ID",
            output=f"{name}-%j.out",
            requeue=job.requeue,
        ),
    )


def batch(stack: Stack, submission: Submission) -> str:
    """The script of a whole cluster."""
    job, asked = plan.settings(stack), plan.requests(stack)
    parts = plan.components(asked)
    return _filled(
        "cluster.sh",
        stack=stack.name,
        options=_options(job, submission, parts),
        folder=submission.folder,
        storage=f"{in_shell(job.folder)}/storage/{stack.name}",
        command="" if submission.command is None else f"set -- {shlex.join(submission.command)}",
        # sbatch's own options override those of the script.
        nodes=str(sum(one.nodes for one in parts[0])),
        groups=" ".join(one.group for one in asked),
        tasks="\n".join(_tasks(job, parts)),
        setup="\n".join(job.setup),
        plan=plan.nodes_plan(stack).to_json(),
        code=node_code(),
    )


def joining(
    stack: Stack, group: Request, submission: Submission, *, address: str, count: int
) -> str:
    """The script of a job array of `count` workers that join a cluster.

    Args:
        stack: the cluster's stack.
        group: what one worker asks for.
        submission: the job; its folder is the cluster's.
        address: HOST:PORT of the cluster's GCS.
        count: how many workers.
    """
    job = plan.settings(stack)
    options = [f"#SBATCH --array=1-{count}", _options(job, submission, [[group]])]
    return _filled(
        "worker.sh",
        stack=stack.name,
        options="\n".join(options),
        folder=submission.folder,
        storage=f"{in_shell(job.folder)}/storage/{stack.name}",
        group=group.group,
        address=address,
        setup="\n".join(job.setup),
        task=_task(job, group, "--nodes=1 --ntasks=1"),
    )


def node_code() -> str:
    """The nodes' code, a zip that Python runs, in base64; the same bytes for the same code."""
    # An empty package, so that one that is installed there, maybe of another version, is not used.
    files = {"__main__.py": _MAIN, "sunspot/__init__.py": ""}
    files |= {
        f"sunspot/node/{name}": (NODE_SOURCES / name).read_bytes().decode() for name in NODE_MODULES
    }
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in files.items():
            archive.writestr(zipfile.ZipInfo(name, _EPOCH), text, zipfile.ZIP_DEFLATED)
    return "\n".join(textwrap.wrap(base64.b64encode(packed.getvalue()).decode(), 100))


def _filled(template: str, **values: str) -> str:
    """A script with each @name@ replaced, and what takes its place left as it is."""
    text = (TEMPLATES / template).read_text()
    given = values | {"common": (TEMPLATES / "common.sh").read_text().strip()}
    return re.sub("@([a-z]+)@", lambda found: given[found[1]], text)


def _options(job: Job, submission: Submission, parts: Sequence[Sequence[Request]]) -> str:
    common = [
        f"--job-name={submission.name}",
        f"--output={submission.output}",
        "--open-mode=append",
        "--requeue" if submission.requeue else "--no-requeue",
        # A node that fails takes its own work with it, and not the cluster.
        "--no-kill",
        f"--signal=B:USR1@{job.notice_s}",
    ]
    written = []
    for number, part in enumerate(parts):
        own = [f"--nodes={sum(one.nodes for one in part)}", *part[0].options()]
        timed = [f"--time={job.time}"] if job.time else []
        written.append([*(common if number == 0 else []), *timed, *own])
    return "\n#SBATCH hetjob\n".join(
        "\n".join(f"#SBATCH {one}" for one in part) for part in written
    )


def _tasks(job: Job, parts: Sequence[Sequence[Request]]) -> list[str]:
    lines = []
    for number, part in enumerate(parts):
        before = 0
        for one in part:
            where = f"--relative={before}" if len(parts) == 1 else f"--het-group={number}"
            line = _task(job, one, f"{where} --nodes={one.nodes} --ntasks={one.nodes}")
            lines.append(f"        {one.group}) {line} ;;")
            before += one.nodes
    return lines


def _task(job: Job, group: Request, where: str) -> str:
    """The command that runs "$@", an action of the node's code, on every node of a group."""
    # Since 22.05 srun does not take --cpus-per-task from the job.
    # exec: a signal to the job ends neither the step's tasks nor the wait for them too early.
    # It takes the memory of the job's first component for that of all (SLURM_MEM_PER_NODE).
    size = f"--cpus-per-task={group.cpus}"
    if group.memory_mb:
        size += f" --mem={group.memory_mb}M"
    # A job that was submitted with --export=NONE would start its steps with it too (srun(1)).
    step = f"exec srun {where} {size} --export=ALL --kill-on-bad-exit=0 --no-kill"
    flags, inner = _contained(job)
    node = f'{inner} {job.python} "$folder/node.zip" "$@"'
    return f'{step}{flags} bash -c "$on_node" sunspot "$folder"{node}'


def _contained(job: Job) -> tuple[str, str]:
    """The flags of srun, and what stands before the node's command."""
    container = job.container
    if container is None:
        return "", ""
    flags = "".join(f" {flag}" for flag in container.flags)
    image = shlex.quote(container.image)
    if container.kind == "apptainer":
        bound = "".join(f" --bind {bind}" for bind in _binds(job, container))
        return "", f" apptainer exec{bound}{flags} {image}"
    mounts = ",".join(_binds(job, container))
    return f" --container-image={image} --container-mounts={mounts}{flags}", ""


def _binds(job: Job, container: Container) -> list[str]:
    """What a container sees of the node, as SOURCE:DESTINATION, quoted for bash."""
    own = ['"$folder:$folder"', '"$storage:$storage"']
    if container.kind == "apptainer" and job.scratch != DEFAULT_SCRATCH:  # which it sees anyway
        own.append(shlex.quote(f"{job.scratch}:{job.scratch}"))
    return [*own, *map(shlex.quote, container.binds)]
