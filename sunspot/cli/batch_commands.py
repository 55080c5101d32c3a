"""The command that brings a cluster up for one command."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from typing import Annotated, Any

import typer

from sunspot import console
from sunspot import stack as stacks
from sunspot.cli import sending
from sunspot.cli.base import (
    AfterDashes,
    Commands,
    Context,
    Gpu,
    Namespace,
    NewStack,
    connect,
    fitted,
)
from sunspot.errors import UsageError
from sunspot.stack import Stack
from sunspot.targets import abilities, clusters, node_types, one_job
from sunspot.targets.job_clusters import JobClusters
from sunspot.targets.protocol import Batches, Target

commands = Commands()


@commands.command(
    cls=AfterDashes,
    epilog="Example: sunspot run dev -- python workloads/primes.py\n"
    "Example: sunspot run hybrid --num-gpus 1 --pip emoji -- python train.py\n"
    "Example: sunspot run dev --target kubernetes -- python workloads/primes.py\n"
    "Example: sunspot run dev --target slurm -- python workloads/primes.py",
)
def run(
    given: typer.Context,
    stack: NewStack,
    target_name: Annotated[
        str | None,
        typer.Option(
            "--target", help="Target to use instead of the stack's own, such as kubernetes."
        ),
    ] = None,
    gpu: Gpu = None,
    context: Context = None,
    namespace: Namespace = None,
    num_cpus: sending.NumCpus = None,
    num_gpus: sending.NumGpus = None,
    memory: sending.Memory = None,
    resources: sending.Resources = None,
    runtime_env: sending.RuntimeEnv = None,
    pip: sending.Pip = None,
    requirements: sending.Requirements = None,
    conda: sending.Conda = None,
    env: sending.Env = None,
    working_dir: sending.WorkingDir = None,
    detach: Annotated[
        bool,
        typer.Option(
            "--detach",
            "-d",
            help="Do not wait for the command's end, where the cluster ends by itself: on Slurm.",
        ),
    ] = False,
) -> None:
    """Bring a cluster up for the command after --, run it on the head, exit with its code.

    Nothing of the cluster is left then, also after an error. Ctrl-C stops the command and takes
    the cluster down. What the command should leave, it writes to storage outside the cluster.
    """
    from sunspot.targets.azure.aks import by_pulumi

    command = given.meta.get(AfterDashes.KEY, [])
    if not command:
        raise UsageError(
            f"there is no command after --, for instance: sunspot run {stack} -- python mine.py"
        )
    options: dict[str, Any] = {
        "num_cpus": num_cpus,
        "num_gpus": num_gpus,
        "memory": memory,
        "resources": resources,
        "runtime_env": runtime_env,
        "pip": pip,
        "requirements": requirements,
        "conda": conda,
        "env": env,
        "working_dir": working_dir,
    }
    loaded = stacks.load(stack)
    if target_name is None and context is None:
        by_pulumi.refuse_up(loaded)
    target = clusters.get(target_name or loaded.target)
    wanted = fitted(loaded, target, gpu=gpu, context=context, namespace=namespace)
    if (batches := abilities.find(target, Batches)) is not None:
        _refuse_options(target, options)
        sys.exit(batches.run(wanted, command, sys.stdout, console.note, follow=not detach))
    if detach:
        raise UsageError(
            f"--detach: on {target.name} it is this command that takes the cluster down: leave it "
            f"out, or use sunspot up {stack}, sunspot submit --detach and sunspot down {stack}"
        )
    submitted = None
    if (clusters_of_jobs := abilities.find(target, JobClusters)) is not None:
        target = clusters_of_jobs.for_one_job()
        submitted = partial(clusters_of_jobs.submitted, wanted.name)
    sys.exit(_run(target, wanted, sending.read(command, **options), submitted))


def _run(
    target: Target,
    stack: Stack,
    job: sending.GivenJob,
    submitted: Callable[[str], None] | None,
) -> int:
    """Runs the job on a cluster of its own, and tells `submitted` its id; returns the exit code."""
    from sunspot.ray import feasibility

    types = node_types.of(target, stack)
    feasibility.check_feasible(job.request, types, may_wait=False)
    sending.check_folder(job)
    code: int | None = None
    try:
        with one_job.cluster(target, stack, console.progress):
            client = connect(target, stack.name)
            _, code = sending.send(client, types, job, submitted=submitted)
    except Exception as error:
        if code is not None:
            error.add_note(f"the command had ended before, with exit code {code}")
        raise
    return code


def _refuse_options(target: Target, options: dict[str, Any]) -> None:
    """Refuses what only Ray's job API takes, where the command is not a job of it."""
    given = [f"--{name.replace('_', '-')}" for name, value in options.items() if value is not None]
    if given:
        raise UsageError(
            f"{', '.join(given)}: on {target.name} the command is not one of Ray's jobs: leave it "
            f"out, or bring the cluster up with sunspot up and use sunspot submit"
        )
