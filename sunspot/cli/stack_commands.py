"""Commands that do not need a cluster: the demo brings up its own, the others only read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from sunspot import console
from sunspot import stack as stacks
from sunspot.cli.base import DEFAULT_STACK, AsJson, Commands, NewStack
from sunspot.errors import UsageError
from sunspot.stack import Stack

commands = Commands()


@commands.command(epilog="Example: sunspot demo --out /tmp/report")
def demo(
    out: Annotated[Path, typer.Option(help="Folder for the report.")] = Path("sunspot-report"),
    keep: Annotated[bool, typer.Option("--keep", help="Leave the cluster up.")] = False,
) -> None:
    """Start a local cluster, run the CPU workloads, write a report, stop everything."""
    from sunspot import demo as demonstration

    index = demonstration.run(out, keep=keep)
    console.out.print(f"report: [bold]{escape(str(index))}[/]")


@commands.command(epilog="Example: sunspot preview hybrid --show user-data head")
def preview(
    stack: NewStack = DEFAULT_STACK,
    as_json: AsJson = False,
    show: Annotated[
        tuple[str, str] | None,
        typer.Option(
            metavar="user-data NODE",
            help="Print only what this node boots from: head, worker, or a group's name.",
        ),
    ] = None,
    refresh_prices: Annotated[
        bool, typer.Option("--refresh-prices", help="Ask Azure for today's prices (no account).")
    ] = False,
) -> None:
    """Show what a stack would be on Azure: resources, cost, ports, quota. Create nothing."""
    from sunspot.targets.azure.aks import plan as aks

    loaded = stacks.load(stack)
    if aks.is_aks(loaded):
        if show is not None:
            raise UsageError("--show: the nodes of AKS boot from AKS's own images: leave it out")
        _preview_aks(loaded, as_json=as_json, refresh_prices=refresh_prices)
        return
    from sunspot.targets.azure import preview as view

    found = view.collect(loaded, refresh_prices=refresh_prices)
    if show is not None:
        view.show_part(found, *show, as_json=as_json)
    elif as_json:
        print(json.dumps(view.to_json(found), indent=2))
    else:
        view.show(found, console.out)
        for line in view.next_steps(found):
            console.note(line)


def _preview_aks(stack: Stack, *, as_json: bool, refresh_prices: bool) -> None:
    from sunspot.targets.azure.aks import preview as view

    found = view.collect(stack, refresh_prices=refresh_prices)
    if as_json:
        print(json.dumps(view.to_json(found), indent=2))
        return
    view.show(found, console.out)
    for line in view.next_steps(found):
        console.note(line)


@commands.command(epilog="Example: sunspot bake hybrid")
def bake(stack: NewStack = DEFAULT_STACK) -> None:
    """Make a VM image for a stack in your subscription, so that its nodes boot faster."""
    from sunspot.node.azure.arm import Arm
    from sunspot.targets.azure import bake as baking
    from sunspot.targets.azure import preview as view
    from sunspot.targets.azure.aks.plan import is_aks
    from sunspot.targets.azure.credentials import Login, chosen_subscription

    given = stacks.load(stack)
    if is_aks(given):
        raise UsageError(f"stack {stack!r} runs on AKS, which has images of its own: bake another")
    # The image that it has now may be one for another Ray.
    plain = given.model_copy(update={"image": given.image.model_copy(update={"vm_image": None})})
    wanted = baking.recipe(view.collect(plain).plan)
    login = Login(subscription=chosen_subscription(stack, stacks.project_directory()))
    builder = baking.Builder(Arm(login), login.subscription(), console.note)
    made = builder.bake(wanted)
    console.note(f"In Pulumi.{stack}.yaml, below sunspot:image:")
    print(f"vm_image: {made}")


@commands.command(epilog="Example: sunspot sizes --gpu T4 --region uksouth --spot")
def sizes(
    gpu: Annotated[str | None, typer.Option(help="Only sizes with this GPU, such as T4.")] = None,
    region: Annotated[
        str | None, typer.Option(help="Only what this Azure region has, at its prices.")
    ] = None,
    spot: Annotated[bool, typer.Option("--spot", help="Sort by the spot price.")] = False,
    as_json: AsJson = False,
    refresh_prices: Annotated[
        bool, typer.Option("--refresh-prices", help="Ask Azure for today's prices (no account).")
    ] = False,
) -> None:
    """List the VM sizes that a stack may name, with their prices, the cheapest first."""
    from sunspot import offers

    found = offers.collect(gpu=gpu, region=region, spot=spot, refresh_prices=refresh_prices)
    if as_json:
        print(json.dumps(offers.to_json(found), indent=2))
    else:
        offers.show(found, console.out)


@commands.command(epilog="Example: sunspot schema > cluster.schema.json")
def schema() -> None:
    """Print the JSON schema of a stack's `sunspot:cluster` block."""
    print(json.dumps(stacks.schema(), indent=2))
