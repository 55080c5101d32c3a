"""What several commands share: their errors, their parsing, their arguments and options."""

from __future__ import annotations

import functools
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from sunspot import console
from sunspot import stack as stacks
from sunspot.cli import interrupts
from sunspot.errors import SunspotError, UsageError
from sunspot.ray.handle import ClusterHandle
from sunspot.stack import Stack
from sunspot.targets import abilities, clusters
from sunspot.targets.protocol import GpuMakers, Places, Target

if TYPE_CHECKING:
    from sunspot.ray.jobs import JobClient
    from sunspot.targets.protocol import Target

DEFAULT_STACK = "dev"

PORTS = range(1, 65_536)


class Subcommands(TyperGroup):
    """Commands below a common name."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        _put_columns_closer()
        super().format_help(ctx, formatter)


class Group(Subcommands):
    """Prints a SunspotError as one message and exits with its code."""

    def invoke(self, ctx: Any) -> Any:
        with interrupts.Raising() as signals:
            try:
                return super().invoke(ctx)
            except SunspotError as error:
                signals.finish()
                console.fail(str(error))
                _print_notes(error)
                ctx.exit(error.exit_code)
            except KeyboardInterrupt as interrupt:
                signals.finish()
                console.fail("interrupted")
                _print_notes(interrupt)
                ctx.exit(interrupts.INTERRUPTED)


def _print_notes(error: BaseException) -> None:
    """Prints what an exception carries besides its message: what was not removed, for instance."""
    for note in getattr(error, "__notes__", ()):
        console.note(note)


def _put_columns_closer() -> None:
    """Puts one space between the columns of help: with typer's two, 60 columns cut option names."""
    from typer import rich_utils  # only help needs it

    rich_utils.STYLE_OPTIONS_TABLE_PADDING = (0, 1, 0, 0)


class Command(TyperCommand):
    """Prints each of its examples in one line, as all that may be copied; typer would wrap it."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except typer.TyperException as error:
            takes_stack = any("--stack" in parameter.opts for parameter in self.params)
            if takes_stack and "unexpected extra argument" in str(error):
                raise UsageError(f"{error}. This command takes a cluster by --stack NAME") from None
            raise

    def format_help(self, ctx: Any, formatter: Any) -> None:
        _put_columns_closer()
        examples, self.epilog = self.epilog or "", None
        super().format_help(ctx, formatter)
        self.epilog = examples
        for example in examples.splitlines():
            console.out.print(f" {example}", markup=False)
        console.out.print()


class Commands(typer.Typer):
    """Some commands of the command; each is a `Command`."""

    def command(self, *args: Any, cls: type[Command] = Command, **options: Any) -> Any:
        return super().command(*args, cls=cls, **options)


# What commands suggest to run, where it is there.
PROGRAM = "workloads/primes.py"


class AfterDashes(Command):
    """Keeps the arguments after `--` apart from those before it."""

    KEY = "sunspot.after_dashes"

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if "--" in args:
            cut = args.index("--")
            ctx.meta[self.KEY] = args[cut + 1 :]
            args = args[:cut]
        return super().parse_args(ctx, args)


def connect(target: Target, name: str) -> JobClient:
    """The job API of a cluster that is up; it finds the cluster again if its tunnel dies."""
    from sunspot.ray.jobs import JobClient

    find = functools.partial(target.handle, name, console.note)
    return JobClient(find(), reconnect=find)


NewStack = Annotated[str, typer.Argument(metavar="STACK", help="Reads Pulumi.STACK.yaml.")]
FiledStack = Annotated[
    str | None,
    typer.Argument(metavar="STACK", help="Reads Pulumi.STACK.yaml.", show_default=DEFAULT_STACK),
]
StackFile = Annotated[
    Path | None,
    typer.Option(
        "--file",
        help="Read this file instead: a stack file, or only the content of its sunspot:cluster "
        "block. STACK is then the cluster's name, by default the file's.",
    ),
]
UpStack = Annotated[
    str | None,
    typer.Argument(metavar="STACK", help="The cluster's stack; optional if only one is up."),
]
StackOption = Annotated[
    str | None,
    typer.Option("--stack", "-s", help="The cluster's stack; optional if only one is up."),
]
UpTarget = Annotated[
    str | None,
    typer.Option(
        "--target", help="The cluster's target; needed only if its stack is up on several."
    ),
]
Gpu = Annotated[
    str | None,
    typer.Option(
        "--gpu",
        help="Where the target is one host: its GPUs are of nvidia or amd, or none, which makes "
        "GPUs logical; by default what the host has.",
    ),
]
Context = Annotated[
    str | None,
    typer.Option(
        "--context", help="On Kubernetes: the context of the kubeconfig; by default the current."
    ),
]
Namespace = Annotated[
    str | None,
    typer.Option(
        "--namespace", "-n", help="On Kubernetes: the namespace; by default the context's."
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]
JobId = Annotated[
    str, typer.Argument(metavar="ID", help="The job's id, as `sunspot jobs` lists it.")
]


def read_stack(stack: str | None, file: Path | None) -> Stack:
    """The stack that a command with `FiledStack` and `StackFile` is about.

    Raises:
        UsageError: there is no such file, or it is not a stack file.
    """
    return stacks.load_file(file, stack) if file else stacks.load(stack or DEFAULT_STACK)


def fitted(
    stack: Stack,
    target: Target,
    *,
    gpu: str | None = None,
    context: str | None = None,
    namespace: str | None = None,
) -> Stack:
    """The stack as it would be brought up on a target.

    Args:
        stack: the stack as its file describes it.
        target: the target.
        gpu: the maker of the GPUs, if one was named.
        context: the context of a kubeconfig, if one was named.
        namespace: the namespace in it, if one was named.

    Raises:
        UsageError: the target cannot provide some nodes, or no such choice.
    """
    chosen = stack.for_target(target.name)
    if gpu is not None:
        chosen = abilities.need(target, GpuMakers).with_gpus(chosen, gpu)
    return placed(chosen, target, context, namespace)


def placed(stack: Stack, target: Target, context: str | None, namespace: str | None) -> Stack:
    """The stack at the place that was named, if one was.

    Raises:
        UsageError: the target has no such choice.
    """
    if context is None and namespace is None:
        return stack
    return abilities.need(target, Places).at_place(stack, context, namespace)


def print_handle(handle: ClusterHandle) -> None:
    """Prints how to reach a cluster, and the command that comes next."""
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
    program = PROGRAM if Path(PROGRAM).is_file() else "mine.py"
    console.out.print(f"    ray job submit --working-dir . -- python {program}")
    up = [one.name for one in clusters.running()]
    stack = f" --stack {handle.name}" if len(up) > 1 else ""
    where = f" --target {handle.target}" if up.count(handle.name) > 1 else ""
    submit = f"sunspot submit{stack}{where} -- python {program}"
    console.note(f"next: {submit} · sunspot down {handle.name}{where}")
