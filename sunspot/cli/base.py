"""What several commands share: their errors, their parsing, their arguments and options."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from sunspot import console
from sunspot.cli import interrupts
from sunspot.errors import SunspotError

DEFAULT_STACK = "dev"


class Group(TyperGroup):
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


class Command(TyperCommand):
    """Prints its example in one line, as all that may be copied; typer would wrap it."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        example, self.epilog = self.epilog, None
        super().format_help(ctx, formatter)
        self.epilog = example
        console.out.print(f" {example}\n", markup=False)


class Commands(typer.Typer):
    """Some commands of the command; each is a `Command`."""

    def command(self, *args: Any, cls: type[Command] = Command, **options: Any) -> Any:
        return super().command(*args, cls=cls, **options)


class AfterDashes(Command):
    """Keeps the arguments after `--` apart from those before it."""

    KEY = "sunspot.after_dashes"

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if "--" in args:
            cut = args.index("--")
            ctx.meta[self.KEY] = args[cut + 1 :]
            args = args[:cut]
        return super().parse_args(ctx, args)


NewStack = Annotated[str, typer.Argument(metavar="STACK", help="Reads Pulumi.STACK.yaml.")]
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
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]
JobId = Annotated[
    str, typer.Argument(metavar="ID", help="The job's id, as `sunspot jobs` lists it.")
]
