"""The `sunspot` command: it parses arguments, calls other modules and prints their results."""

from __future__ import annotations

import signal
from typing import Any, NoReturn

import typer

from sunspot.cli import cluster_commands, head_commands, job_commands, stack_commands
from sunspot.cli.base import Group

app = typer.Typer(
    name="sunspot",
    cls=Group,
    help="Ray clusters on Azure spot capacity, and the same clusters on this machine.",
    epilog="Start with: sunspot up dev",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)
for module in (cluster_commands, job_commands, head_commands, stack_commands):
    app.add_typer(module.commands)


def _terminate(_signal: int, _frame: Any) -> NoReturn:
    raise KeyboardInterrupt


def main() -> None:
    """The entry point of the console script. SIGTERM and a closed terminal act like Ctrl-C."""
    signal.signal(signal.SIGTERM, _terminate)
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # as under nohup
        signal.signal(signal.SIGHUP, _terminate)
    app()
