"""The `sunspot` command: it parses arguments, calls other modules and prints their results."""

from __future__ import annotations

import platform
from importlib import metadata
from typing import Annotated

import typer

import sunspot
from sunspot.cli import (
    batch_commands,
    cluster_commands,
    doctor_commands,
    event_commands,
    head_commands,
    job_commands,
    manifest_commands,
    serve_commands,
    stack_commands,
    suspend_commands,
    view_commands,
)
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
for module in (
    cluster_commands,
    view_commands,
    event_commands,
    suspend_commands,
    job_commands,
    batch_commands,
    serve_commands,
    head_commands,
    stack_commands,
    doctor_commands,
    manifest_commands,
):
    app.add_typer(module.commands)


def _print_version(asked: bool) -> None:
    if asked:
        versions = f"{sunspot.__version__}, Ray {metadata.version('ray')}"
        print(f"sunspot {versions}, Python {platform.python_version()}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option(
            "--version",
            callback=_print_version,
            is_eager=True,
            help="Print the versions of Sunspot, Ray and Python.",
        ),
    ] = False,
) -> None: ...
