"""The command that prints what a target is given for a stack."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sunspot.cli.base import (
    DEFAULT_STACK,
    AfterDashes,
    Commands,
    Context,
    FiledStack,
    Namespace,
    StackFile,
    fitted,
    read_stack,
)
from sunspot.errors import UsageError
from sunspot.targets import abilities, clusters
from sunspot.targets.job_manifests import JobManifests
from sunspot.targets.protocol import Manifests, Rights
from sunspot.targets.served import ServedManifests

commands = Commands()


@commands.command(
    cls=AfterDashes,
    epilog="Example: sunspot manifest dev --target slurm > dev.sh\n"
    "Example: sunspot manifest dev --target kubernetes | kubectl apply -f -\n"
    "Example: sunspot manifest dev --target kubernetes --serve serve.yaml\n"
    "Example: sunspot manifest dev --target kubernetes --job -- python /code/train.py",
)
def manifest(
    given: typer.Context,
    stack: FiledStack = None,
    file: StackFile = None,
    target_name: Annotated[
        str | None,
        typer.Option("--target", help="Target to use instead of the stack's own, such as slurm."),
    ] = None,
    context: Context = None,
    namespace: Namespace = None,
    rbac: Annotated[
        bool,
        typer.Option(
            "--rbac", help="Print the Role that applying it needs, and its RoleBinding, instead."
        ),
    ] = False,
    serve: Annotated[
        str | None,
        typer.Option(
            metavar="CONFIG|MODULE:APP",
            help="Also what Ray Serve serves: on Kubernetes, a RayService instead of a RayCluster.",
        ),
    ] = None,
    job: Annotated[
        bool,
        typer.Option(
            "--job",
            help="A cluster for the command after --, whose code is in the image: on Kubernetes, a "
            "RayJob.",
        ),
    ] = False,
    runtime_env: Annotated[
        Path | None, typer.Option(help="Ray runtime environment of that command, YAML or JSON.")
    ] = None,
) -> None:
    """Print what the stack's target is given, which works without Sunspot too. Create nothing."""
    if rbac + (serve is not None) + job > 1:
        raise UsageError("--rbac, --serve and --job are different manifests: give one of them")
    command = given.meta.get(AfterDashes.KEY, [])
    if job != bool(command) or (runtime_env is not None and not job):
        raise UsageError(
            "--job needs a command after --, and only it takes one and --runtime-env, for "
            f"instance: sunspot manifest {stack or DEFAULT_STACK} --job -- python /code/train.py"
        )
    loaded = read_stack(stack, file)
    target = clusters.get(target_name or loaded.target)
    wanted = fitted(loaded, target, context=context, namespace=namespace)
    if rbac:
        text = abilities.need(target, Rights).rights(wanted)
    elif job:
        from sunspot.ray import runtime_env as environments

        environment = None if runtime_env is None else environments.read(runtime_env)
        text = abilities.need(target, JobManifests).job_manifest(wanted, command, environment)
    elif serve is not None:
        text = abilities.need(target, ServedManifests).served_manifest(wanted, serve)
    else:
        text = abilities.need(target, Manifests).manifest(wanted)
    print(text, end="")
