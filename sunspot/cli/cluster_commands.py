"""Commands that bring clusters up, show them, scale them and take them down."""

from __future__ import annotations

import json
import shlex
from dataclasses import dataclass
from typing import Annotated

import typer

from sunspot import console
from sunspot import stack as stacks
from sunspot.cli.base import (
    PORTS,
    AsJson,
    Commands,
    Context,
    FiledStack,
    Gpu,
    Namespace,
    StackFile,
    StackOption,
    UpStack,
    UpTarget,
    fitted,
    print_handle,
    read_stack,
)
from sunspot.errors import SunspotError, UntrustedError, UsageError
from sunspot.stack import Stack
from sunspot.targets import abilities, clusters, drift
from sunspot.targets.consent import (
    DeletesLeftBehind,
    DrainsGroups,
    LeftBehindError,
    ReplacesHeads,
)
from sunspot.targets.protocol import Outputs, Removal, Target
from sunspot.targets.scaling import Scaling, Size, parse

commands = Commands()


@commands.command(
    epilog="Example: sunspot up hybrid --target local\nExample: sunspot up --file cluster.yaml\n"
    "Example: sunspot up dev --target kubernetes --namespace ml"
)
def up(
    stack: FiledStack = None,
    file: StackFile = None,
    target_name: Annotated[
        str | None,
        typer.Option("--target", help="Target to use instead of the stack's own, such as local."),
    ] = None,
    gpu: Gpu = None,
    context: Context = None,
    namespace: Namespace = None,
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
    replace_head: Annotated[
        bool,
        typer.Option(
            "--replace-head",
            help="On Azure: go on though the head's VM would be replaced, and the disk with the "
            "cluster's state be lost.",
        ),
    ] = False,
    now: Annotated[
        bool,
        typer.Option(
            "--now",
            help="On Azure: delete the workers of removed groups, and those with an older boot, "
            "with what runs on them, instead of draining them first.",
        ),
    ] = False,
) -> None:
    """Bring a cluster up and print how to reach it.

    On Azure, one that is up is updated: workers with an older image or boot are drained and
    replaced, a quarter of a group at a time.
    """
    from sunspot.targets.azure.aks import by_pulumi

    _check_port("--port", port)
    _check_port("--dashboard-port", dashboard_port)
    loaded = read_stack(stack, file)
    if target_name is None and context is None:
        by_pulumi.refuse_up(loaded)
    name, target = loaded.name, clusters.get(target_name or loaded.target)
    if replace_head:
        target = abilities.need(target, ReplacesHeads).replacing_head()
    if now:
        target = abilities.need(target, DrainsGroups).removing_now()
    wanted = fitted(loaded, target, gpu=gpu, context=context, namespace=namespace)
    with console.progress(f"bringing up {name}") as progress:
        started = target.up(
            wanted, progress, port=port, dashboard_port=dashboard_port, client=client
        )
    handle, was_up = started.handle, started.was_up
    console.out.print(f"[bold]{name}[/] {'is up already' if was_up else 'is up'} ({handle.target})")
    for text in started.notes:
        console.warn(text)
    if was_up:
        options = {
            "--file": file,
            "--target": target_name,
            "--gpu": gpu,
            "--context": context,
            "--namespace": namespace,
            "--port": port,
            "--dashboard-port": dashboard_port,
        }
        again = ["sunspot", "up", name]
        for flag, value in options.items():
            again += [] if value is None else [flag, str(value)]
        again += ["--client"] if client else []
        where = file or f"Pulumi.{name}.yaml"
        if not by_pulumi.describes_aks(loaded):  # Pulumi's has other sizes of nodes than the file
            _note_differences(target, wanted, str(where), shlex.join(again))
    print_handle(handle)
    if program := abilities.find(target, Outputs):
        console.out.print("  the stack's outputs:")
        for key, value in program.outputs(name).items():
            console.out.print(f"    {key:<24} {value}", markup=False)


def _check_port(flag: str, wish: int | None) -> None:
    from sunspot.targets import host_ports  # late: it loads psutil

    if wish is not None:
        host_ports.check_number(flag, wish, PORTS)  # some targets take fewer


@commands.command(epilog="Example: sunspot down dev")
def down(
    stack: UpStack = None,
    target_name: UpTarget = None,
    delete_storage: Annotated[
        bool,
        typer.Option("--delete-storage", help="Delete what is kept otherwise: results, volumes."),
    ] = False,
    volumes: Annotated[
        bool, typer.Option("--volumes", help="The same, in the word of Docker Compose.")
    ] = False,
    yes: Annotated[
        bool,
        typer.Option(
            "--yes",
            help="On Azure, where Pulumi does not know the stack any more: delete its resource "
            "group without asking. If results are in it, add --delete-storage.",
        ),
    ] = False,
) -> None:
    """Take a cluster down, completely. It is not an error if it is not up.

    Then check what still exists, on Azure by asking Azure, and fail if anything does.
    Results that the stack protects are kept.
    """
    from sunspot.targets.azure.aks import by_pulumi

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
    agreed = Agreed(storage=delete_storage or volumes, left_behind=yes)
    with by_pulumi.naming_destroy(stack):
        is_taken_down = any(_take_down(target, name, agreed) for target, name in found)
    if not is_taken_down:
        if stack:
            _look_in_files(stack, target_name)
        which = f"stack {stack!r} is not up" if stack else "no cluster is up"
        console.out.print(f"{which} - nothing to do")


def _look_in_files(name: str, target_name: str | None) -> None:
    """Notes that there is no file of a stack that is not up: its name or the folder may be wrong.

    Refuses to call a stack of this project "not up" that only Pulumi knows, unless only another
    target was looked at.
    """
    from sunspot.targets.azure import settings
    from sunspot.targets.azure.aks import by_pulumi

    try:
        found = stacks.find(name)
    except UntrustedError:
        raise
    except SunspotError:  # without a file that can be read, nothing is known
        return
    if found is None:
        console.note(
            f"there is no file of a stack {name!r} here either: a cluster on Azure or Kubernetes "
            "is found from its project's folder, or on the machine that brought it up"
        )
    elif target_name in (None, settings.TARGET):
        by_pulumi.refuse_down(found)


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


@commands.command(
    epilog="Example: sunspot scale workers=2\nExample: sunspot scale dev workers=1:4 gpu=0"
)
def scale(
    changes: Annotated[
        list[str],
        typer.Argument(
            metavar="[STACK] GROUP=N|MIN:MAX...",
            help="A group, and the number of workers it gets or the limits of the autoscaler.",
            show_default=False,
        ),
    ],
    stack: StackOption = None,
    target_name: UpTarget = None,
) -> None:
    """Start workers of a group, or drain and stop some of them, without a restart.

    N also becomes the group's minimum: the autoscaler does not go below it. With MIN:MAX it stays
    within both. Where there is no autoscaler, the group gets the nearest number in that range.
    """
    named, sizes = _stack_and_sizes(stack, changes)
    target, name = clusters.find(named, target_name)
    scaling = abilities.need(target, Scaling)
    with console.progress(f"scaling {' '.join(changes)}") as progress:
        scaling.scale(name, sizes, progress)
    after = scaling.sizes(name)
    for group, size in sizes.items():
        console.out.print(f"group [bold]{group}[/] of {name} has {_told(size, after[group])}")


def _told(given: Size, after: Size) -> str:
    """How many workers a group has that was given a size."""
    if given.minimum < given.highest and after.maximum is not None:
        return f"between {given.minimum} and {given.highest} workers"
    count = (given if given.minimum == given.highest else after).minimum
    return f"{count} {'worker' if count == 1 else 'workers'}"


def _stack_and_sizes(stack: str | None, changes: list[str]) -> tuple[str | None, dict[str, Size]]:
    """The stack, which may also be the first of several arguments, and the size of each group."""
    if len(changes) > 1 and "=" not in changes[0]:
        if stack is not None:
            raise UsageError(f"the stack is given twice, {changes[0]!r} and {stack!r}: give one")
        return changes[0], parse(changes[1:])
    return stack, parse(changes)


def _note_differences(target: Target, wanted: Stack, where: str, again: str) -> None:
    """Says how a cluster that was up already differs from its file, and how to keep either."""
    running, scaling = target.stack(wanted.name), abilities.find(target, Scaling)
    sizes = {} if scaling is None else scaling.sizes(wanted.name)
    for line in drift.by_hand(running, sizes, wanted, where):
        console.note(line)
    if drift.has_other_settings(running, sizes, wanted):
        console.note(
            f"this cluster was brought up with other settings than {where} has now. To recreate "
            f"it: sunspot down {wanted.name} && {again}"
        )


@dataclass(frozen=True, kw_only=True)
class Agreed:
    """What `down` may delete besides: the results, and what Pulumi does not know any more."""

    storage: bool
    left_behind: bool


def _take_down(target: Target, name: str, agreed: Agreed) -> bool:
    """Takes a cluster down and prints what was kept; False if the target does not have it."""
    try:
        with console.progress(f"taking down {name}") as progress:
            removal = target.down(name, progress, delete_storage=agreed.storage)
    except LeftBehindError as error:
        removal = _delete_left_behind(target, name, agreed, error)
    if removal is None:
        return False
    removal.check(name)
    _print_removal(name, removal)
    return True


def _delete_left_behind(
    target: Target, name: str, agreed: Agreed, error: LeftBehindError
) -> Removal:
    """Deletes what a target cannot take down in order, if the user agrees.

    Raises:
        LeftBehindError: they do not, or cannot be asked.
    """
    deletes = abilities.need(target, DeletesLeftBehind)
    if agreed.left_behind:
        is_agreed = agreed.storage or not error.has_results
    else:
        is_agreed = console.can_ask() and _says_yes(error)
    if not is_agreed:
        raise error
    with console.progress(f"taking down {name}") as progress:
        return deletes.delete_left_behind(name, progress)


def _says_yes(error: LeftBehindError) -> bool:
    console.warn(str(error))
    try:
        return typer.confirm(error.question, err=True)
    except typer.Abort:  # Ctrl-C, or the end of the input
        return False


def _print_removal(name: str, removal: Removal) -> None:
    other = "other " if removal.kept else ""
    console.out.print(f"[bold]{name}[/] is down; no {other}{removal.looked_for} of it is left")
    for sentence in removal.kept:
        console.out.print(f"  {sentence}", markup=False)
