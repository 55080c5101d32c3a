"""Commands that make, change, show and take away clusters."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from sunspot import console
from sunspot import stack as stacks
from sunspot.cli.base import DEFAULT_STACK, AsJson, NewStack, StackOption, UpStack, UpTarget
from sunspot.errors import SunspotError, UsageError
from sunspot.targets import clusters, registry
from sunspot.targets.protocol import ClusterHandle, Remote, Target

commands = typer.Typer()


@commands.command(epilog="Example: sunspot up hybrid --target local")
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
    place = registry.get(target or loaded.target)
    sized = loaded.for_target(target or loaded.target)
    # A remote cluster may have been brought up by others: its `up` always looks for changes.
    was_up = not isinstance(place, Remote) and _is_up(place, stack)
    try:
        with console.progress(f"bringing up {stack}") as progress:
            handle = place.up(sized, progress, port=port, dashboard_port=dashboard_port)
    except KeyboardInterrupt:
        if isinstance(place, Remote):
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
    if isinstance(place, Remote):
        console.out.print("  the stack's outputs:")
        for name, value in place.outputs(stack).items():
            console.out.print(f"    {name:<24} {value}", soft_wrap=True, markup=False)


@commands.command(epilog="Example: sunspot down dev")
def down(
    stack: UpStack = None,
    target: UpTarget = None,
    delete_storage: Annotated[
        bool, typer.Option("--delete-storage", help="Azure: delete the protected results too.")
    ] = False,
) -> None:
    """Take a cluster away, all of it. Nothing to take away is no error.

    On Azure it then asks Azure what still exists, and fails if anything does. Results that the
    stack protects are kept.
    """
    chosen = clusters.running(stack, target)
    places = registry.places(target)
    if not chosen and stack and any(_take_down(p, stack, delete_storage) for p in places.values()):
        return
    if not chosen:
        console.out.print(
            f"stack {stack!r} is not up" if stack else "no cluster is up", "- nothing to do"
        )
        return
    if len(names := {cluster.name for cluster in chosen}) > 1:
        shown = ", ".join(sorted(names))
        raise UsageError(f"several clusters are up ({shown}); name one: sunspot down NAME")
    place, name, _ = clusters.only(chosen)
    if _take_down(place, name, delete_storage):
        return
    with console.progress(f"taking down {name}") as progress:
        place.down(name, progress)
    console.out.print(f"[bold]{name}[/] is down; no process, port or file of it is left")


@commands.command(epilog="Example: sunspot status --json | jq '.nodes[].name'")
def status(stack: UpStack = None, target: UpTarget = None, as_json: AsJson = False) -> None:
    """Show nodes, resources, market, lost nodes and jobs."""
    from sunspot import status as view

    place, name, _ = clusters.find(stack, target)
    found = view.collect(place, name)
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
        typer.Argument(metavar="GROUP=N...", help="How many workers a group should have."),
    ],
    stack: StackOption = None,
    target: UpTarget = None,
) -> None:
    """Start workers of a group, or drain and stop some.

    N also becomes the group's minimum: the autoscaler does not go below it.
    """
    counts = [_count(change) for change in changes]
    place, name, _ = clusters.find(stack, target)
    if not isinstance(place, Remote):  # those say themselves who owns a group
        for group, count in counts:
            clusters.check_scale(place.stack(name), group, count)
    for group, count in counts:
        with console.progress(f"scaling {group} to {count}") as progress:
            place.scale(name, group, count, progress)
        console.out.print(
            f"group [bold]{group}[/] of {name} has {count} {'worker' if count == 1 else 'workers'}"
        )


def _print_handle(handle: ClusterHandle) -> None:
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


def _is_up(place: Target, name: str) -> bool:
    try:
        place.handle(name)
    except SunspotError:
        return False
    return True


def _take_down(place: Target, name: str, delete_storage: bool) -> bool:
    """Takes a cluster of a remote target away and tells what was kept; False if it has none."""
    if not isinstance(place, Remote):
        return False
    with console.progress(f"taking down {name}") as progress:
        kept = place.take_down(name, progress, delete_storage=delete_storage)
    if kept is None:
        return False
    console.out.print(f"[bold]{name}[/] is down; nothing {'else ' if kept else ''}of it is left")
    for sentence in kept:
        console.out.print(f"  {sentence}", soft_wrap=True)
    return True


def _count(change: str) -> tuple[str, int]:
    group, _, count = change.partition("=")
    if not group or not count.isdecimal():
        raise UsageError(f"{change!r} is not of the form GROUP=N, for instance workers=2")
    return group, int(count)
