"""Commands that bring clusters up, show them, scale them and take them down."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Annotated

import typer

from sunspot import console
from sunspot import stack as stacks
from sunspot.cli.base import (
    DEFAULT_STACK,
    AsJson,
    Commands,
    StackOption,
    UpStack,
    UpTarget,
)
from sunspot.errors import SunspotError, UsageError
from sunspot.ray.handle import ClusterHandle
from sunspot.targets import abilities, clusters
from sunspot.targets.protocol import Outputs, Removal, Scaling, Target

commands = Commands()


@commands.command(
    epilog="Example: sunspot up hybrid --target local\nExample: sunspot up --file cluster.yaml"
)
def up(
    stack: Annotated[
        str | None,
        typer.Argument(
            metavar="STACK", help="Reads Pulumi.STACK.yaml.", show_default=DEFAULT_STACK
        ),
    ] = None,
    file: Annotated[
        Path | None,
        typer.Option(
            help="Read this file instead: a stack file, or only the content of its "
            "sunspot:cluster block. STACK is then the cluster's name, by default the file's."
        ),
    ] = None,
    target_name: Annotated[
        str | None,
        typer.Option("--target", help="Target to use instead of the stack's own, such as local."),
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(
            help="Port of the GCS, for clusters on this machine; by default 6379 if it is free."
        ),
    ] = None,
    dashboard_port: Annotated[
        int | None,
        typer.Option(
            help="Port of the dashboard and the job API on this machine; by default 8265 if it is "
            "free."
        ),
    ] = None,
    client: Annotated[
        bool,
        typer.Option(
            "--client",
            help="For programs that connect to ray://127.0.0.1:10001: start Ray Client's server "
            "too. Only clusters on this machine start without it.",
        ),
    ] = False,
) -> None:
    """Bring a cluster up and print how to reach it."""
    loaded = stacks.load_file(file, stack) if file else stacks.load(stack or DEFAULT_STACK)
    name, target = loaded.name, clusters.get(target_name or loaded.target)
    fitted = loaded.for_target(target.name)
    with console.progress(f"bringing up {name}") as progress:
        started = target.up(
            fitted, progress, port=port, dashboard_port=dashboard_port, client=client
        )
    handle, was_up = started.handle, started.was_up
    console.out.print(f"[bold]{name}[/] {'is up already' if was_up else 'is up'} ({handle.target})")
    for text in started.notes:
        console.warn(text)
    if was_up and target.stack(name) != fitted:
        again = ["sunspot", "up", name]
        again += ["--file", str(file)] if file else []
        again += ["--target", target_name] if target_name else []
        console.note(
            f"this cluster was brought up with other settings than {file or f'Pulumi.{name}.yaml'} "
            f"has now. To recreate it: sunspot down {name} && {shlex.join(again)}"
        )
    _print_handle(handle)
    if program := abilities.find(target, Outputs):
        console.out.print("  the stack's outputs:")
        for key, value in program.outputs(name).items():
            console.out.print(f"    {key:<24} {value}", markup=False)


@commands.command(epilog="Example: sunspot down dev")
def down(
    stack: UpStack = None,
    target_name: UpTarget = None,
    delete_storage: Annotated[
        bool, typer.Option("--delete-storage", help="On Azure: delete the protected results too.")
    ] = False,
) -> None:
    """Take a cluster down, completely. It is not an error if it is not up.

    Then check what still exists, on Azure by asking Azure, and fail if anything does.
    Results that the stack protects are kept.
    """
    chosen = clusters.running(stack, target_name)
    if len(names := sorted({cluster.name for cluster in chosen})) > 1:
        raise UsageError(
            f"several clusters are up ({', '.join(names)}); name one: sunspot down NAME"
        )
    if chosen:
        found = [clusters.only(chosen)]
    elif stack:  # a cluster without a record on this machine may exist all the same
        found = [clusters.Cluster(target, stack) for target in clusters.all_targets(target_name)]
    else:
        found = []
    if not any(_take_down(target, name, delete_storage) for target, name in found):
        which = f"stack {stack!r} is not up" if stack else "no cluster is up"
        console.out.print(f"{which} - nothing to do")


@commands.command(epilog="Example: sunspot status --json | jq '.nodes[].name'")
def status(stack: UpStack = None, target_name: UpTarget = None, as_json: AsJson = False) -> None:
    """Show nodes, resources, market, lost nodes and jobs."""
    from sunspot import status as view

    target, name = clusters.find(stack, target_name)
    found = view.collect(target, name, console.note)
    if as_json:
        print(json.dumps(view.to_json(found), indent=2))
    else:
        view.show(found, console.out)
    if found.problem:
        raise SunspotError(found.problem)


@commands.command(epilog="Example: sunspot scale workers=2")
def scale(
    changes: Annotated[
        list[str],
        typer.Argument(metavar="GROUP=N...", help="A group and the number of workers it gets."),
    ],
    stack: StackOption = None,
    target_name: UpTarget = None,
) -> None:
    """Start workers of a group, or drain and stop some of them.

    N also becomes the group's minimum: the autoscaler does not go below it.
    """
    counts = dict(_count(change) for change in changes)
    target, name = clusters.find(stack, target_name)
    scaling = abilities.need(target, Scaling)
    with console.progress(f"scaling {' '.join(changes)}") as progress:
        scaling.scale(name, counts, progress)
    for group, count in counts.items():
        workers = "worker" if count == 1 else "workers"
        console.out.print(f"group [bold]{group}[/] of {name} has {count} {workers}")


def _print_handle(handle: ClusterHandle) -> None:
    rows = {
        "head address": handle.head_address,
        "dashboard and job API": handle.job_address,
        "token": f"in {handle.token_path}",
    }
    if handle.client_address is not None:
        rows["Ray Client"] = handle.client_address
    for label, value in rows.items():
        console.out.print(f"  {label:<22} {value}", markup=False)
    drivers = " and ray.init()" if handle.driver_address else ""
    console.out.print(f"  for plain `ray` commands{drivers}:")
    for variable, value in handle.environment().items():
        console.out.print(f"    export {variable}={shlex.quote(value)}", markup=False)
    console.out.print("    ray job submit --working-dir . -- python workloads/primes.py")
    console.note(f"next: sunspot submit -- python workloads/primes.py · sunspot down {handle.name}")


def _take_down(target: Target, name: str, delete_storage: bool) -> bool:
    """Takes a cluster down and prints what was kept; False if the target does not have it."""
    with console.progress(f"taking down {name}") as progress:
        removal = target.down(name, progress, delete_storage=delete_storage)
    if removal is None:
        return False
    removal.check(name)
    _print_removal(name, removal)
    return True


def _print_removal(name: str, removal: Removal) -> None:
    other = "other " if removal.kept else ""
    console.out.print(f"[bold]{name}[/] is down; no {other}{removal.looked_for} of it is left")
    for sentence in removal.kept:
        console.out.print(f"  {sentence}", markup=False)


def _count(change: str) -> tuple[str, int]:
    group, _, count = change.partition("=")
    if not group or not count.isdecimal():
        raise UsageError(f"{change!r} is not of the form GROUP=N, for instance workers=2")
    return group, int(count)
