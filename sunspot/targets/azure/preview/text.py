"""A preview as text for a user, to fit 60 columns; only a command in it may be longer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from rich.console import Console
from rich.markup import escape
from rich.padding import Padding
from rich.table import Table
from rich.text import Text
from rich.tree import Tree

from sunspot.catalog import regions
from sunspot.catalog.cost import Costs
from sunspot.catalog.services import HOURS_A_MONTH
from sunspot.console import filled
from sunspot.targets.azure import access
from sunspot.targets.azure.access import Opening
from sunspot.targets.azure.plan import AzurePlan
from sunspot.targets.azure.preview.advice import Quota
from sunspot.targets.azure.settings import TARGET
from sunspot.targets.azure.tree import Resource, short, span

if TYPE_CHECKING:
    from sunspot.targets.azure.preview import Preview

UNKNOWN = "?"
MARKETS = {"spot-with-fallback": "spot, else on-demand"}


def show(preview: Preview, console: Console) -> None:
    """Prints the preview: resources, costs, ports, quota, notes, and the warnings last."""
    plan = preview.plan
    nodes = 1 + sum(group.max_workers for group in plan.cluster.scaling_groups)
    console.print(
        f"[bold]{escape(plan.stack)}[/] on Azure, {plan.location}: at most {nodes} "
        f"machine{'' if nodes == 1 else 's'}"
    )
    if preview.target != TARGET:
        paragraph(
            console,
            f"`sunspot up {plan.stack}` runs it on target {preview.target}; this is what "
            f"`pulumi up -s {plan.stack}` would create.",
            indent="",
        )
    made = sum(1 for r in preview.resources.walk() if not r.children)
    heading(console, f"Resources ({made})")
    block(console, tree_of(preview.resources))
    heading(console, "Cost, USD an hour")
    block(console, cost_table(preview.costs))
    block(console, others_table(preview.costs))
    for line in cost_lines(preview.costs, plan.location):
        paragraph(console, line)
    heading(console, "Who may connect")
    block(console, _port_table(preview))
    paragraph(console, _network_line(plan))
    heading(console, f"Quota to have in {plan.location}, all groups full")
    block(console, quota_table(preview.quotas))
    listed(console, "Good to know", preview.notes)
    listed(console, "Warnings", preview.warnings, style="yellow")


def next_steps(preview: Preview) -> Iterator[str]:
    """What to run next, with the README's own commands: on this machine if that is its target."""
    stack = preview.plan.stack
    if preview.target == TARGET:
        on, up = "", f"sunspot up {stack}"
    else:
        yield f"next, on target {preview.target}: sunspot up {stack}"
        on, up = ", on Azure", f"sunspot up {stack} --target {TARGET}"
    yield f"next{on} (docs/azure.md):"
    yield "    pulumi login --local"
    yield "    export PULUMI_CONFIG_PASSPHRASE=..."
    yield f"    pulumi stack init {stack}"
    yield f"    {up}"


def heading(console: Console, title: str, style: str = "bold") -> None:
    """A title, with a blank line before it."""
    console.print()
    console.print(title, style=style)


def listed(console: Console, title: str, lines: Sequence[str], style: str = "") -> None:
    """A titled list, if it has lines."""
    if not lines:
        return
    heading(console, title, f"bold {style}".strip())
    for line in lines:
        console.print(Text(filled(line, console.width, first="  - ", rest="    ")), soft_wrap=True)


def block(console: Console, content: Table | Tree) -> None:
    """A table or tree, indented."""
    console.print(Padding(content, (0, 0, 0, 2), expand=False), soft_wrap=False)


def paragraph(console: Console, text: str, indent: str = "  ") -> None:
    """A paragraph, filled."""
    lines = filled(text, console.width, first=indent, rest=indent)
    console.print(Text(lines, style="dim"), soft_wrap=True)


def tree_of(resource: Resource, into: Tree | None = None) -> Tree:
    """The resources as a tree."""
    label = Text(resource.kind, style="bold" if resource.children else "")
    if resource.detail:
        label.append(f"  {resource.detail}", style="dim")
    if resource.protected:
        label.append("  protected", style="yellow")
    branch = Tree(label, guide_style="dim") if into is None else into.add(label)
    for child in resource.children:
        tree_of(child, branch)
    return branch


def cost_table(costs: Costs) -> Table:
    """The groups of machines and what they cost."""
    table = Table(box=None, header_style="dim", pad_edge=False)
    table.add_column("\n\ngroup", overflow="fold", max_width=14)
    table.add_column("\n\nmachines", overflow="fold")
    for heading in ("\nat min\nspot", "at min\non\ndemand", "\nat max\nspot", "at max\non\ndemand"):
        table.add_column(heading, justify="right", no_wrap=True)
    for group in costs.groups:
        market = MARKETS.get(group.market, group.market)
        table.add_row(
            group.name,
            f"{span(group.minimum, group.maximum)} x {short(group.size)}, {market}",
            *(
                "-" if spot and group.never_spot else _usd(costs.usd(group, count, spot=spot))
                for count in (group.minimum, group.maximum)
                for spot in (True, False)
            ),
        )
    return table


def others_table(costs: Costs) -> Table:
    """What is not a machine and what it costs."""
    table = Table(box=None, header_style="dim", pad_edge=False)
    table.add_column("besides")
    for heading in ("at min", "at max"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("")
    for other in costs.others:
        table.add_row(other.name, _usd(other.minimum), _usd(other.maximum), other.guess)
    return table


def _usd(amount: float | None) -> str:
    return UNKNOWN if amount is None else f"{amount:.3f}"


def cost_lines(costs: Costs, location: str) -> Iterator[str]:
    """What the sums are, where their prices come from, and what they leave out."""
    prices = costs.prices
    month = HOURS_A_MONTH
    low, high = costs.total()
    yield (
        f"Machines as bought: {costs.minimum:.3f} at the minimum, {costs.maximum:.3f} at the "
        f"maximum. All of it: {low:.3f} and {high:.3f} ({low * month:.0f} and {high * month:.0f} "
        "USD a month)."
    )
    elsewhere = prices.region != location
    yield (
        f"Prices: {prices.source}, {prices.region}, {prices.date}."
        + (" For today's here: --refresh-prices." if elsewhere else "")
    )
    if elsewhere and location in regions.known():
        yield (
            f"On-demand prices of {location} differ: `sunspot sizes --region {location}` "
            "lists them."
        )
    if costs.assumed:
        yield (
            f"{UNKNOWN} No spot price known for {_sizes(costs.assumed)}; the sums take the "
            "on-demand price."
        )
    if costs.unknown:
        yield f"{UNKNOWN} No price known for {_sizes(costs.unknown)}; the sums leave it out."
    shown = {g.size for g in costs.groups if g.market == "on-demand" and not g.never_spot}
    named = {*costs.assumed, *costs.unknown}
    if others := sorted(size for size in shown - named if prices.of(size).spot is None):
        yield f"{UNKNOWN} No spot price known for {_sizes(others)}."
    yield "Extra: what is stored, and traffic that leaves Azure or the region."


def _sizes(names: Sequence[str]) -> str:
    return ", ".join(short(name) for name in names)


def _port_table(preview: Preview) -> Table:
    table = Table(box=None, header_style="dim", pad_edge=False)
    for heading in ("port", "", "on"):
        table.add_column(heading, no_wrap=True)
    table.add_column("from")
    for where, opening in _merged(preview.openings):
        table.add_row(opening.range, opening.port, where, _sources(opening, preview.plan))
    return table


def _merged(openings: Sequence[Opening]) -> Iterator[tuple[str, Opening]]:
    """Each opening with its nodes; one line if head and workers have the same."""
    of_workers = {o.port: o for o in openings if o.role == "worker"}
    for opening in openings:
        if opening.role == "worker":
            continue
        other = of_workers.get(opening.port)
        if other is None:
            yield "head", opening
        elif other.sources == opening.sources:
            yield "every node", opening
        else:
            yield "head", opening
            yield "workers", other


def _sources(opening: Opening, plan: AzurePlan) -> str:
    if opening.sources == access.nodes(plan):
        return "the nodes"
    head, _ = access.nodes(plan)
    bastion = None if plan.addresses is None else plan.addresses.bastion_subnet
    names = {head: "the head", bastion: "the Bastion"}
    return ", ".join(names.get(source, source) for source in opening.sources) or "no address"


def _network_line(plan: AzurePlan) -> str:
    head, workers = access.nodes(plan)
    public = "has a public address" if plan.access.public_ip else "has no public address"
    return (
        f"Everything else is refused, peered networks included. The head {public}, workers never "
        f"have one. Nodes: {head} (head), {workers} (workers)."
    )


def quota_table(quotas: Sequence[Quota]) -> Table:
    """The vCPUs to have."""
    table = Table(box=None, header_style="dim", pad_edge=False)
    table.add_column("vCPUs", justify="right")
    table.add_column("quota")
    table.add_column("for")
    for quota in quotas:
        table.add_row(str(quota.vcpus), quota.name, ", ".join(quota.needed_by))
    return table
