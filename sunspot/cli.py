"""The `sunspot` command: parses, calls, prints. What it does lies in the modules it calls."""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperCommand, TyperGroup

from sunspot import console, targets
from sunspot import stack as stacks
from sunspot.errors import SunspotError, UsageError

DEFAULT_STACK = "dev"
INTERRUPTED = 130


class _Group(TyperGroup):
    """Turns the errors that we raise on purpose into one message and their exit code."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except SunspotError as error:
            console.fail(str(error))
            ctx.exit(error.exit_code)
        except KeyboardInterrupt:
            console.fail("interrupted")
            ctx.exit(INTERRUPTED)


class _AfterDashes(TyperCommand):
    """Keeps what stands after `--` apart from the arguments before it."""

    KEY = "sunspot.after_dashes"

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if "--" in args:
            cut = args.index("--")
            ctx.meta[self.KEY] = args[cut + 1 :]
            args = args[:cut]
        return super().parse_args(ctx, args)


app = typer.Typer(
    name="sunspot",
    cls=_Group,
    help="Ray clusters on Azure spot capacity, and the same clusters on this machine.",
    epilog="Start with: sunspot up dev",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)

NewStack = Annotated[str, typer.Argument(metavar="STACK", help="Reads Pulumi.STACK.yaml.")]
UpStack = Annotated[
    str | None,
    typer.Argument(metavar="STACK", help="The cluster's stack; not needed if only one is up."),
]
StackOption = Annotated[
    str | None,
    typer.Option("--stack", "-s", help="The cluster's stack; not needed if only one is up."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]
JobId = Annotated[
    str, typer.Argument(metavar="ID", help="The job's id, as `sunspot jobs` lists it.")
]


@app.command(epilog="Example: sunspot up hybrid --target local")
def up(
    stack: NewStack = DEFAULT_STACK,
    target: Annotated[
        str | None, typer.Option(help="Where to run it instead of the stack's own target: local.")
    ] = None,
    port: Annotated[
        int | None, typer.Option(help="Port of the GCS; a free one by default.")
    ] = None,
    dashboard_port: Annotated[
        int | None, typer.Option(help="Port of dashboard and job API; 8265 if it is free.")
    ] = None,
) -> None:
    """Bring a cluster up and print how to reach it."""
    loaded = stacks.load(stack)
    place = targets.get(target or loaded.target)
    sized = loaded.for_target(target or loaded.target)
    # A remote cluster may have been brought up by others: its `up` always looks for changes.
    was_up = not isinstance(place, targets.Remote) and _is_up(place, stack)
    try:
        with console.progress(f"bringing up {stack}") as progress:
            handle = place.up(sized, progress, port=port, dashboard_port=dashboard_port)
    except KeyboardInterrupt:
        if isinstance(place, targets.Remote):
            console.note(
                f"What was made stays, and is billed. Go on: sunspot up {stack} · "
                f"take it away: sunspot down {stack}"
            )
        raise
    console.out.print(
        f"[bold]{stack}[/] {'is up already' if was_up else 'is up'} ({handle.target})"
    )
    if was_up and place.stack(stack) != sized:
        console.note(
            f"Pulumi.{stack}.yaml is not what this cluster was made of. To make it anew: "
            f"sunspot down {stack} && sunspot up {stack}"
        )
    _print_handle(handle)
    if isinstance(place, targets.Remote):
        console.out.print("  the stack's outputs:")
        for name, value in place.outputs(stack).items():
            console.out.print(f"    {name:<24} {value}", soft_wrap=True, markup=False)


@app.command(epilog="Example: sunspot down dev")
def down(
    stack: UpStack = None,
    delete_storage: Annotated[
        bool, typer.Option("--delete-storage", help="Azure: delete the protected results too.")
    ] = False,
) -> None:
    """Take a cluster away, all of it. Nothing to take away is no error.

    On Azure it then asks Azure what still exists, and fails if anything does. Results that the
    stack protects are kept.
    """
    running = [(place, name) for place in _targets() for name in place.names()]
    chosen = [(place, name) for place, name in running if stack in (None, name)]
    if not chosen and stack and any(_take_down(p, stack, delete_storage) for p in _targets()):
        return
    if not chosen:
        console.out.print(
            f"stack {stack!r} is not up" if stack else "no cluster is up", "- nothing to do"
        )
        return
    if len(chosen) > 1:
        raise UsageError(f"several clusters are up ({_names(chosen)}); name one: sunspot down NAME")
    place, name = chosen[0]
    if _take_down(place, name, delete_storage):
        return
    with console.progress(f"taking down {name}") as progress:
        place.down(name, progress)
    console.out.print(f"[bold]{name}[/] is down; no process, port or file of it is left")


@app.command(epilog="Example: sunspot status --json | jq '.nodes[].name'")
def status(stack: UpStack = None, as_json: AsJson = False) -> None:
    """Show nodes, resources, market, lost nodes and jobs."""
    from sunspot import status as view

    place, name = targets.find(stack)
    found = view.collect(place, name)
    if as_json:
        print(json.dumps(view.to_json(found), indent=2))
    else:
        view.show(found, console.out)
    if found.problem:
        raise SunspotError(found.problem)


@app.command(
    context_settings={"allow_interspersed_args": False},
    epilog="Example: sunspot submit --num-gpus 1 -- python workloads/primes.py --stop 9020000",
)
def submit(
    entrypoint: Annotated[list[str], typer.Argument(metavar="-- COMMAND...", help="What to run.")],
    stack: StackOption = None,
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
    from sunspot import feasibility, jobs
    from sunspot import runtime_env as environments

    request = feasibility.Request(
        num_cpus=num_cpus, num_gpus=num_gpus, memory_gb=memory, resources=_resources(resources)
    )
    environment = environments.load(runtime_env, env or [], working_dir)
    if name is not None:
        jobs.check_id(name)
    if wait and detach:
        raise UsageError("--wait waits here, so it cannot go with --detach; leave one of them out")
    place, cluster = targets.find(stack)
    client = jobs.JobClient(place.handle(cluster))
    types = feasibility.node_types(place.stack(cluster))
    if feasibility.can_hold(request, types):
        pass  # the usual case: no need to ask which nodes are there
    elif wait:
        feasibility.wait_for_node(request, types, client.live_nodes, console.note)
    else:
        feasibility.check_feasible(request, [*types, *client.live_nodes()])
    client.send_working_dir(environment, console.note)
    job_id = client.submit(entrypoint, request=request, runtime_env=environment, job_id=name)
    if detach:
        console.out.print(job_id)
        console.note(f"follow it: sunspot logs {job_id} -f · stop it: sunspot stop {job_id}")
        return
    console.note(f"job {job_id}")
    sys.exit(_follow_or_stop(client, job_id))


@app.command(epilog="Example: sunspot jobs --json")
def jobs(stack: StackOption = None, as_json: AsJson = False) -> None:
    """List the cluster's jobs, the newest first."""
    from sunspot import status as view

    found = _job_client(stack).list()
    if as_json:
        print(json.dumps([view.job_to_json(job) for job in found], indent=2))
    else:
        console.out.print(view.job_table(found) if found else "no jobs yet")


@app.command(epilog="Example: sunspot logs primes-3f9a1c -f")
def logs(
    job_id: JobId,
    stack: StackOption = None,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Go on until the job ends.")
    ] = False,
) -> None:
    """Print a job's output. With -f, Ctrl-C ends the printing and not the job."""
    from sunspot import jobs as job_api

    client = _job_client(stack)
    if not follow:
        sys.stdout.write(client.logs(job_id))
        return
    client.get(job_id)
    sys.exit(job_api.exit_code(client.follow(job_id, sys.stdout, console.note)))


@app.command(epilog="Example: sunspot stop primes-3f9a1c")
def stop(job_id: JobId, stack: StackOption = None) -> None:
    """Stop a job and wait until it has ended."""
    client = _job_client(stack)
    before = client.get(job_id)
    with console.progress(f"stopping {job_id}"):
        job = client.stop(job_id)
    console.out.print(
        f"job {job.id} had ended already: {job.status}"
        if before.has_ended
        else f"job {job.id} is {job.status}"
    )


@app.command(epilog="Example: sunspot dashboard --open")
def dashboard(
    stack: UpStack = None,
    open_browser: Annotated[bool, typer.Option("--open", help="Open it in the browser.")] = False,
) -> None:
    """Print the dashboard's address and how to get past its token."""
    place, name = targets.find(stack)
    handle = place.handle(name)
    console.out.print(handle.job_address, soft_wrap=True)
    console.note(
        "The dashboard asks for the cluster's token once and keeps it in a cookie. Print it with:\n"
        f"  cat {handle.token_path}"
    )
    if open_browser:
        typer.launch(handle.job_address)


@app.command(cls=_AfterDashes, epilog="Example: sunspot ssh hybrid -- docker ps")
def ssh(context: typer.Context, stack: UpStack = None) -> None:
    """Open a shell on the head, or run what stands after -- there and end with its exit code."""
    sys.exit(_remote(stack, "ssh").run(context.meta.get(_AfterDashes.KEY, [])))


@app.command(epilog="Example: sunspot rsync --stack hybrid head:results/ results/")
def rsync(
    source: Annotated[str, typer.Argument(metavar="SOURCE", help="What to copy.")],
    destination: Annotated[str, typer.Argument(metavar="DEST", help="Where to; head:PATH there.")],
    stack: StackOption = None,
) -> None:
    """Copy files to the head or from it; the side on the head is written head:PATH."""
    sys.exit(_remote(stack, "rsync").copy(source, destination))


@app.command(epilog="Example: sunspot scale workers=2")
def scale(
    changes: Annotated[
        list[str],
        typer.Argument(metavar="GROUP=N...", help="How many workers a group should have."),
    ],
    stack: StackOption = None,
) -> None:
    """Start workers of a group, or drain and stop some.

    N also becomes the group's minimum: the autoscaler does not go below it.
    """
    counts = [_count(change) for change in changes]
    place, name = targets.find(stack)
    if not isinstance(place, targets.Remote):  # those say themselves who owns a group
        for group, count in counts:
            targets.check_scale(place.stack(name), group, count)
    for group, count in counts:
        with console.progress(f"scaling {group} to {count}") as progress:
            place.scale(name, group, count, progress)
        console.out.print(
            f"group [bold]{group}[/] of {name} has {count} {'worker' if count == 1 else 'workers'}"
        )


@app.command(epilog="Example: sunspot demo --out /tmp/report")
def demo(
    out: Annotated[Path, typer.Option(help="Folder for the report.")] = Path("sunspot-report"),
    keep: Annotated[bool, typer.Option("--keep", help="Leave the cluster up.")] = False,
) -> None:
    """A local cluster, the CPU workloads on it, a report, everything stopped again."""
    from sunspot import demo as demonstration

    index = demonstration.run(out, keep=keep)
    console.out.print(f"report: [bold]{index}[/]", soft_wrap=True)


@app.command(epilog="Example: sunspot preview hybrid --show user-data head")
def preview(
    stack: NewStack = DEFAULT_STACK,
    as_json: AsJson = False,
    show: Annotated[
        tuple[str, str] | None,
        typer.Option(
            metavar="user-data NODE",
            help="Print only what a node boots from: head, worker, or a group's name.",
        ),
    ] = None,
    refresh_prices: Annotated[
        bool, typer.Option("--refresh-prices", help="Ask Azure for today's prices (no account).")
    ] = False,
) -> None:
    """Show what a stack would be on Azure: resources, cost, ports, quota. Nothing is made."""
    from sunspot import preview as view

    found = view.collect(stacks.load(stack), refresh_prices=refresh_prices)
    if show is not None:
        view.show_part(found, *show, as_json=as_json)
    elif as_json:
        print(json.dumps(view.to_json(found), indent=2))
    else:
        view.show(found, console.out)
        console.note(f"next: pulumi up -s {stack}")


@app.command(epilog="Example: sunspot schema > cluster.schema.json")
def schema() -> None:
    """Print the JSON schema of a stack's `sunspot:cluster` block."""
    print(json.dumps(stacks.schema(), indent=2))


def _print_handle(handle: targets.ClusterHandle) -> None:
    rows = {
        "head address": handle.head_address,
        "dashboard and job API": handle.job_address,
        "token": f"in {handle.token_path}",
    }
    for label, value in rows.items():
        console.out.print(f"  {label:<22} {value}", soft_wrap=True)
    console.out.print("  for plain `ray` commands and ray.init():")
    for variable, value in handle.environment().items():
        console.out.print(f"    export {variable}={value}", soft_wrap=True)
    console.out.print("    ray job submit --working-dir . -- python workloads/primes.py")
    console.note(f"next: sunspot submit -- python workloads/primes.py · sunspot down {handle.name}")


def _is_up(place: targets.Target, name: str) -> bool:
    try:
        place.handle(name)
    except SunspotError:
        return False
    return True


def _targets() -> list[targets.Target]:
    return [targets.get(name) for name in targets.MODULES]


def _take_down(place: targets.Target, name: str, delete_storage: bool) -> bool:
    """Takes a cluster of a remote target away and tells what was kept; False if it has none."""
    if not isinstance(place, targets.Remote):
        return False
    with console.progress(f"taking down {name}") as progress:
        kept = place.take_down(name, progress, delete_storage=delete_storage)
    if kept is None:
        return False
    console.out.print(f"[bold]{name}[/] is down; nothing {'else ' if kept else ''}of it is left")
    for sentence in kept:
        console.out.print(f"  {sentence}", soft_wrap=True)
    return True


def _remote(stack: str | None, command: str) -> Any:
    """The way to a shell on a head that is not this machine."""
    place, name = targets.find(stack)
    if not isinstance(place, targets.Remote):
        raise UsageError(f"{name} runs on this machine: it needs no sunspot {command}")
    return place.ssh(name)


def _names(chosen: list[tuple[targets.Target, str]]) -> str:
    return ", ".join(name for _, name in chosen)


def _job_client(stack: str | None) -> Any:
    from sunspot import jobs as job_api

    place, name = targets.find(stack)
    return job_api.JobClient(place.handle(name))


def _follow_or_stop(client: Any, job_id: str) -> int:
    from sunspot import jobs as job_api

    try:
        job = client.follow(job_id, sys.stdout, console.note)
    except KeyboardInterrupt:
        console.note(f"stopping job {job_id}")
        client.stop(job_id)
        console.fail(f"interrupted; job {job_id} is stopped")
        return INTERRUPTED
    if job.status != "SUCCEEDED":
        console.fail(f"job {job_id} {job.status}: {job.reason}")
    return job_api.exit_code(job)


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


def _count(change: str) -> tuple[str, int]:
    group, _, count = change.partition("=")
    if not group or not count.isdecimal():
        raise UsageError(f"{change!r} is not of the form GROUP=N, for instance workers=2")
    return group, int(count)


def _terminate(_signal: int, _frame: Any) -> NoReturn:
    raise KeyboardInterrupt


def main() -> None:
    """The console script's entry. SIGTERM cleans up as Ctrl-C does."""
    signal.signal(signal.SIGTERM, _terminate)
    app()


if __name__ == "__main__":
    main()
