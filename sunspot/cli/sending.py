"""One job: what `submit` and `run` take for it, and its life from its submission to its end."""

from __future__ import annotations

import contextlib
import json
import os
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sunspot import console
from sunspot.cli import interrupts
from sunspot.errors import SunspotError, UsageError

if TYPE_CHECKING:
    from sunspot.ray.feasibility import NodeType, Request
    from sunspot.ray.jobs import JobClient
    from sunspot.ray.watching import JobWatch

# How long the cluster may take to know a job whose submission was cut off, in seconds: the
# dashboard waits 10 for an agent (ray/dashboard/consts.py, WAIT_AVAILABLE_AGENT_TIMEOUT, 2.60).
LATE_S = 12.0

_PYTHON = re.compile(r"python[\d.]*")

NumCpus = Annotated[float | None, typer.Option(help="CPUs that the driver itself needs.")]
NumGpus = Annotated[float | None, typer.Option(help="GPUs that the driver itself needs.")]
Memory = Annotated[float | None, typer.Option(help="GiB that the driver itself needs.")]
Resources = Annotated[str | None, typer.Option(help='Custom resources, as JSON: {"widget": 1}.')]
RuntimeEnv = Annotated[
    Path | None, typer.Option(help="Ray runtime environment, a YAML or JSON file.")
]
Pip = Annotated[
    list[str] | None,
    typer.Option(metavar="PKG", help="Package that pip installs for the job; repeatable."),
]
Requirements = Annotated[
    Path | None, typer.Option(help="The packages of a requirements.txt, for the job.")
]
Conda = Annotated[Path | None, typer.Option(help="A conda environment for the job, a YAML file.")]
Env = Annotated[
    list[str] | None, typer.Option(metavar="K=V", help="Environment variable; repeatable.")
]
WorkingDir = Annotated[
    str | None,
    typer.Option(help="Folder (or URI of a zip) to run in; the current one by default."),
]


@dataclass(frozen=True, kw_only=True)
class GivenJob:
    """A job as a command line describes it: what runs, what its driver needs, and in what."""

    command: Sequence[str]
    request: Request
    environment: dict[str, Any]


def read(
    command: Sequence[str],
    *,
    num_cpus: float | None,
    num_gpus: float | None,
    memory: float | None,
    resources: str | None,
    runtime_env: Path | None,
    pip: list[str] | None,
    requirements: Path | None,
    conda: Path | None,
    env: list[str] | None,
    working_dir: str | None,
) -> GivenJob:
    """The job that these options describe. Nothing is asked of a cluster.

    Raises:
        UsageError: an option is wrong.
    """
    from sunspot.ray import feasibility
    from sunspot.ray import runtime_env as environments
    from sunspot.ray.packages import Packages

    request = feasibility.Request(
        num_cpus=num_cpus, num_gpus=num_gpus, memory_gb=memory, resources=_resources(resources)
    )
    wanted = Packages(pip=pip or (), requirements=requirements, conda=conda)
    environment = environments.load(runtime_env, env or [], working_dir, wanted)
    check_program(command, Path(str(environment["working_dir"])))
    return GivenJob(command=command, request=request, environment=environment)


def check_folder(job: GivenJob) -> None:
    """Raises if the job's folder cannot be sent at all.

    Raises:
        UsageError: it is missing, unreadable, too large, or a home directory.
    """
    from sunspot.ray import packaging

    folder = str(job.environment["working_dir"])
    if "://" not in folder:
        with packaging.reading():
            packaging.collect(Path(folder), job.environment.get("excludes", ()))


def check_program(command: Sequence[str], folder: Path) -> None:
    """Raises if the command is `python FILE.py` and the job's folder has no such file.

    What may be elsewhere is not looked for: a file with an absolute path, or in a zip. Nothing is
    uploaded of an empty folder, so its job runs where the image says.

    Raises:
        UsageError: the file is not there, or the folder cannot be read.
    """
    from sunspot.ray import packaging

    name, *words = command
    if not _PYTHON.fullmatch(Path(name).name):
        return
    with packaging.reading():
        if not folder.is_dir() or not any(folder.iterdir()):
            return
    program = next((word for word in words if word != "-u"), "")
    if program.endswith(".py") and not os.path.isfile(folder / program):  # noqa: PTH113 - may not raise
        raise UsageError(
            f"there is no {program} in {folder.resolve()}, where the job would run; "
            "give another folder with --working-dir"
        )


def send(
    client: JobClient,
    types: Sequence[NodeType],
    job: GivenJob,
    *,
    name: str | None = None,
    follow: bool = True,
    submitted: Callable[[str], None] | None = None,
) -> tuple[str, int]:
    """Submits a job and, with `follow`, prints its output until it ends.

    Ctrl-C stops the job; that is an exit code and not an exception.

    Args:
        client: the cluster's job API.
        types: the node types that the cluster's stack declares.
        job: the job.
        name: the job's id, generated by default.
        follow: whether to wait for its end.
        submitted: called with the job's id when the cluster has it.

    Returns:
        The job's id, and the exit code that the command ends with; 0 without `follow`.

    Raises:
        UsageError: a job of that id exists, or its working directory cannot be sent.
        SunspotError: the cluster refused it, or could not be reached any more.
    """
    from sunspot.ray import jobs
    from sunspot.ray.watching import JobWatch

    if name is not None:
        client.check_unused(name)
    watch, environment = JobWatch(client, types, console.note, console.warn), job.environment
    watch.program(job.command, Path(str(environment["working_dir"])))
    client.send_working_dir(environment, console.note)
    job_id = name or jobs.new_id(job.command)
    # One block to the end of the job: an interrupt between two of its steps must not leave the job.
    try:
        with console.progress("submitting the job"), _stopping_on_failure(client, job_id):
            client.submit(job.command, request=job.request, runtime_env=environment, job_id=job_id)
            if submitted is not None:
                submitted(job_id)
        if not follow:
            return job_id, 0
        console.note(f"job {job_id}")
        return job_id, follow_to_end(client, job_id, watch)
    except KeyboardInterrupt:
        return job_id, _interrupted(client, job_id)


def follow_to_end(client: JobClient, job_id: str, watch: JobWatch) -> int:
    """Prints a job's output until it ends, and why it failed if it did; returns its exit code."""
    from sunspot.ray import following
    from sunspot.ray import jobs as job_api

    job = following.follow(client, job_id, sys.stdout, console.note, watch)
    if job.status != "SUCCEEDED":
        console.fail(f"job {job_id} {job.status}: {job.reason}")
        for hint in watch.of_failure(job):
            console.note(hint)
    return job_api.exit_code(job)


@contextlib.contextmanager
def _stopping_on_failure(client: JobClient, job_id: str) -> Iterator[None]:
    """Stops a job whose submission failed after Ray may have taken it, and adds that to the error.

    Where the head's disk is full, Ray (2.60) starts the job and answers with the error of closing
    the job's log (JobManager.submit_job).
    """
    from sunspot.ray import api_errors

    try:
        yield
    except SunspotError as error:
        if api_errors.passing(error) is None:
            raise
        raise SunspotError(f"{error}; {_stopped(client, job_id)}") from error


def _interrupted(client: JobClient, job_id: str) -> int:
    """Stops the job, which the cluster may not know yet, and says so."""
    console.note(f"stopping job {job_id}")
    console.fail(f"interrupted; {_stopped(client, job_id)}")
    return interrupts.INTERRUPTED


def _stopped(client: JobClient, job_id: str) -> str:
    try:
        job = client.stop(job_id, late_s=LATE_S)
    except UsageError:
        stop = f"sunspot stop {job_id} --stack {client.handle.name}"
        return f"the cluster does not know job {job_id}; if it appears yet, end it: {stop}"
    except SunspotError as error:
        return f"job {job_id} could not be stopped and may still run: {error}"
    return f"job {job_id} {'is stopped' if job.status == 'STOPPED' else f'had ended: {job.status}'}"


def _resources(text: str | None) -> dict[str, float]:
    if text is None:
        return {}
    try:
        resources = json.loads(text)
    except ValueError:
        resources = None
    if not isinstance(resources, dict) or not all(
        type(n) in (int, float) for n in resources.values()
    ):
        raise UsageError(
            f'--resources {text!r} is not a JSON object of numbers such as {{"widget": 1}}'
        )
    return resources
