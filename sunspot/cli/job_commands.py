"""Commands about jobs: run, list, read, stop."""

from __future__ import annotations

import functools
import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from sunspot import console
from sunspot.cli.base import INTERRUPTED, AsJson, JobId, StackOption, UpTarget
from sunspot.errors import SunspotError, UsageError
from sunspot.targets import abilities, clusters
from sunspot.targets.protocol import NodeLogs, Target

commands = typer.Typer()


@commands.command(
    context_settings={"allow_interspersed_args": False},
    epilog="Example: sunspot submit --num-gpus 1 -- python workloads/primes.py 1 100000",
)
def submit(
    entrypoint: Annotated[list[str], typer.Argument(metavar="-- COMMAND...", help="What to run.")],
    stack: StackOption = None,
    target: UpTarget = None,
    num_cpus: Annotated[
        float | None, typer.Option(help="CPUs that the driver itself needs.")
    ] = None,
    num_gpus: Annotated[
        float | None, typer.Option(help="GPUs that the driver itself needs.")
    ] = None,
    memory: Annotated[float | None, typer.Option(help="GiB that the driver itself needs.")] = None,
    resources: Annotated[
        str | None, typer.Option(help='Further resources, as JSON: {"widget": 1}.')
    ] = None,
    runtime_env: Annotated[
        Path | None, typer.Option(help="Ray runtime environment, a YAML or JSON file.")
    ] = None,
    env: Annotated[
        list[str] | None, typer.Option(metavar="K=V", help="Environment variable; repeatable.")
    ] = None,
    working_dir: Annotated[
        str | None, typer.Option(help="Folder (or URI of a zip) to run in; default: this one.")
    ] = None,
    name: Annotated[
        str | None, typer.Option(metavar="ID", help="The job's id; made up by default.")
    ] = None,
    detach: Annotated[bool, typer.Option("--detach", "-d", help="Do not follow the job.")] = False,
    wait: Annotated[
        bool,
        typer.Option("--wait", help="Where no node can hold it, wait for one that can."),
    ] = False,
) -> None:
    """Run a command on the cluster, follow its output, end with its exit code.

    The working directory goes along, without what .gitignore and .rayignore leave out.
    Ctrl-C stops the job, unless --detach was given.
    """
    from sunspot.ray import feasibility, jobs
    from sunspot.ray import runtime_env as environments

    request = feasibility.Request(
        num_cpus=num_cpus, num_gpus=num_gpus, memory_gb=memory, resources=_resources(resources)
    )
    environment = environments.load(runtime_env, env or [], working_dir)
    if name is not None:
        jobs.check_id(name)
    if wait and detach:
        raise UsageError("--wait waits here, so it cannot go with --detach; leave one of them out")
    place, cluster = clusters.find(stack, target)
    client = _connect(place, cluster)
    types = feasibility.node_types(place.stack(cluster))
    if feasibility.can_hold(request, types):
        pass  # the usual case: no need to ask which nodes are there
    elif wait:
        feasibility.wait_for_node(request, types, client.live_nodes, console.note)
    else:
        feasibility.check_feasible(request, [*types, *client.live_nodes()])
    client.send_working_dir(environment, console.note)
    with console.progress("handing over the job"):
        job_id = client.submit(entrypoint, request=request, runtime_env=environment, job_id=name)
    if detach:
        console.out.print(job_id)
        console.note(f"follow it: sunspot logs {job_id} -f · stop it: sunspot stop {job_id}")
        return
    console.note(f"job {job_id}")
    sys.exit(_follow_or_stop(client, job_id))


@commands.command(epilog="Example: sunspot jobs --json")
def jobs(stack: StackOption = None, target: UpTarget = None, as_json: AsJson = False) -> None:
    """List the cluster's jobs, the newest first."""
    from sunspot import status as view

    found = _job_client(stack, target).list()
    if as_json:
        print(json.dumps([view.job_to_json(job) for job in found], indent=2))
    else:
        console.out.print(view.job_table(found) if found else "no jobs yet")


@commands.command(epilog="Example: sunspot logs primes-3f9a1c -f · sunspot logs --node head")
def logs(
    job_id: Annotated[
        str | None, typer.Argument(metavar="ID", help="The job's id, as `sunspot jobs` lists it.")
    ] = None,
    node: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Print this node's log instead: head, or a name that `sunspot status` shows; on "
            "Azure also a VM that has not joined, or a private address.",
        ),
    ] = None,
    stack: StackOption = None,
    target: UpTarget = None,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Go on until the job, or the node, ends.")
    ] = False,
) -> None:
    """Print a job's output, or what a node tells of itself: its log, on Azure also how it booted.

    With -f, Ctrl-C ends the printing, and neither the job nor the node.
    """
    from sunspot.ray import following
    from sunspot.ray import jobs as job_api

    if (job_id is None) == (node is None):
        raise UsageError(
            "give either a job's id or a node's name, for instance: "
            "sunspot logs primes-3f9a1c, or: sunspot logs --node head"
        )
    if node is not None:
        place, name = clusters.find(stack, target)
        node_logs = abilities.need(place, NodeLogs)
        sys.exit(node_logs.node_log(name, node, sys.stdout, console.note, follow=follow))
    client = _job_client(stack, target)
    if not follow:
        sys.stdout.write(client.logs(job_id))
        return
    found = client.get(job_id)
    sys.exit(job_api.exit_code(following.follow(client, found.id, sys.stdout, console.note)))


@commands.command(epilog="Example: sunspot stop primes-3f9a1c")
def stop(job_id: JobId, stack: StackOption = None, target: UpTarget = None) -> None:
    """Stop a job and wait until it has ended."""
    client = _job_client(stack, target)
    before = client.get(job_id)
    with console.progress(f"stopping {job_id}"):
        job = client.stop(job_id)
    console.out.print(
        f"job {job.id} had ended already: {job.status}"
        if before.has_ended
        else f"job {job.id} is {job.status}"
    )


def _job_client(stack: str | None, target: str | None) -> Any:
    return _connect(*clusters.find(stack, target))


def _connect(place: Target, name: str) -> Any:
    from sunspot.ray import jobs as job_api

    find = functools.partial(place.handle, name, console.note)
    return job_api.JobClient(find(), reconnect=find)


def _follow_or_stop(client: Any, job_id: str) -> int:
    from sunspot.ray import following
    from sunspot.ray import jobs as job_api

    try:
        job = following.follow(client, job_id, sys.stdout, console.note)
    except KeyboardInterrupt:
        console.note(f"stopping job {job_id}")
        console.fail(f"interrupted; {_stopped(client, job_id)}")
        return INTERRUPTED
    if job.status != "SUCCEEDED":
        console.fail(f"job {job_id} {job.status}: {job.reason}")
    return job_api.exit_code(job)


def _stopped(client: Any, job_id: str) -> str:
    try:
        client.stop(job_id)
    except SunspotError as error:
        return f"job {job_id} could not be stopped and may still run: {error}"
    return f"job {job_id} is stopped"


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
