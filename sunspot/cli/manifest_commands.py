"""The command that prints what a target is given for a stack."""

from __future__ import annotations

from typing import Annotated

import typer

from sunspot import stack as stacks
from sunspot.cli.base import DEFAULT_STACK, Commands, Context, Namespace, NewStack, fitted
from sunspot.errors import UsageError
from sunspot.targets import abilities, clusters
from sunspot.targets.protocol import Manifests, Rights
from sunspot.targets.served import ServedManifests

commands = Commands()


@commands.command(
    epilog="Example: sunspot manifest dev --target slurm > dev.sh\n"
    "Example: sunspot manifest dev --target kubernetes | kubectl apply -f -\n"
    "Example: sunspot manifest dev --target kubernetes --serve serve.yaml"
)
def manifest(
    stack: NewStack = DEFAULT_STACK,
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
) -> None:
    """Print what the stack's target is given, which works without Sunspot too. Create nothing."""
    if rbac and serve is not None:
        raise UsageError("--rbac and --serve are two manifests: give one of them")
    loaded = stacks.load(stack)
    target = clusters.get(target_name or loaded.target)
    wanted = fitted(loaded, target, context=context, namespace=namespace)
    if rbac:
        text = abilities.need(target, Rights).rights(wanted)
    elif serve is not None:
        text = abilities.need(target, ServedManifests).served_manifest(wanted, serve)
    else:
        text = abilities.need(target, Manifests).manifest(wanted)
    print(text, end="")
