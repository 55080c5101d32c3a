"""What a stack will be on AKS, without an account, Pulumi's engine or a network connection."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from rich.console import Console
from rich.markup import escape

from sunspot.catalog import prices
from sunspot.catalog.cost import Costs
from sunspot.stack import Stack
from sunspot.targets.azure.aks.costs import costs
from sunspot.targets.azure.aks.plan import (
    SYSTEM_NODES,
    AksPlan,
    most_nodes,
    plan,
    reaches_nobody,
    with_some_ranges,
)
from sunspot.targets.azure.aks.pools import SYSTEM_POOL
from sunspot.targets.azure.aks.tree import tree
from sunspot.targets.azure.preview import text
from sunspot.targets.azure.preview.advice import ALL_ON_DEMAND, ALL_SPOT, Quota
from sunspot.targets.azure.preview.output import costs_as_dict, resource_as_dict
from sunspot.targets.azure.sizes import unlisted
from sunspot.targets.azure.tree import Resource, short


@dataclass(frozen=True, kw_only=True)
class AksPreview:
    """A plan, and what follows from it."""

    plan: AksPlan
    resources: Resource
    costs: Costs
    reach: list[str]
    quotas: list[Quota]
    notes: list[str]
    warnings: list[str]


def collect(stack: Stack, *, refresh_prices: bool = False) -> AksPreview:
    """The preview of a stack. That no address may reach the API server is only a warning here.

    Raises:
        UsageError: the stack is wrong; the message names every problem.
        SunspotError: today's prices cannot be read.
    """
    missing = reaches_nobody(stack)
    made = plan(stack if missing is None else with_some_ranges(stack))
    known = (
        prices.ask((size.name for size in made.sizes), made.location)
        if refresh_prices
        else prices.from_catalog()
    )
    refused = [] if missing is None else [f"`pulumi up -s {stack.name}` will refuse it: {missing}."]
    return AksPreview(
        plan=made,
        resources=tree(made),
        costs=costs(made, known),
        reach=list(_reach(made, listed=missing is None)),
        quotas=quotas(made),
        notes=list(_notes(made)),
        warnings=[*refused, *_ways_out(made), *unlisted(made.sizes, made.location)],
    )


def quotas(plan: AksPlan) -> list[Quota]:
    """The quotas that the plan uses with all groups full, the families' first."""
    counted: dict[str, list[tuple[str, int]]] = {}
    on_demand = [(SYSTEM_POOL, plan.system_size, SYSTEM_NODES)]
    on_demand += [(p.node_type, p.size, p.maximum) for p in plan.pools if p.market != "spot"]
    for name, size, count in on_demand:
        family = size.quota_family or f"the family of {short(size.name)}"
        counted.setdefault(family, []).append((name, size.vcpus * count))
    counted[ALL_ON_DEMAND] = [(name, size.vcpus * count) for name, size, count in on_demand]
    if spot := [p for p in plan.pools if p.market == "spot"]:
        counted[ALL_SPOT] = [(p.node_type, p.size.vcpus * p.maximum) for p in spot]
    return [
        Quota(name=name, vcpus=sum(n for _, n in uses), needed_by=tuple(who for who, _ in uses))
        for name, uses in counted.items()
    ]


def _reach(plan: AksPlan, *, listed: bool) -> Iterator[str]:
    if plan.aks.private:
        yield "The API server: hosts of the network of your subnet, and of peered ones."
    else:
        blocks = ", ".join(plan.aks.authorized_ip_ranges) if listed else "no address yet"
        own = ", and the cluster's own nodes" if plan.subnet_id is None else ""
        yield f"The API server, with a kubeconfig: {blocks}{own}."
    yield (
        "Ray: pods of the Kubernetes cluster, with the token; from outside through the API server "
        "(`kubectl port-forward`). Nodes have no public address."
    )


def _notes(plan: AksPlan) -> Iterator[str]:
    yield (
        f"{SYSTEM_NODES} nodes for Kubernetes' own pods and the head's node run all the time; AKS "
        "makes the nodes of groups for their pods, and deletes them minutes after the last one."
    )
    if plan.aks.tier == "Free":
        yield (
            "The control plane's Free tier has no guarantee of its availability: for more, "
            "sunspot:aks > tier: Standard."
        )
    if plan.storage.protect:
        yield (
            "The storage is protected, so that `pulumi destroy` refuses: with --exclude-protected "
            "it deletes all but the storage, and after `pulumi state unprotect --all` everything."
        )


def _ways_out(plan: AksPlan) -> Iterator[str]:
    """Microsoft, "Secure access to the API server using authorized IP address ranges in AKS"."""
    if plan.subnet_id is not None and not plan.aks.private:
        yield (
            "The nodes are in your subnet: where that goes out by a NAT gateway or a firewall, "
            "list its public address in sunspot:aks > authorized_ip_ranges, or no node can join."
        )


def show(preview: AksPreview, console: Console) -> None:
    """Prints the preview: resources, costs, reach, quota, notes, and the warnings last."""
    plan = preview.plan
    most = most_nodes(plan.pools)
    console.print(
        f"[bold]{escape(plan.stack)}[/] on AKS, {plan.location}: at most {most} nodes",
    )
    made = sum(1 for one in preview.resources.walk() if not one.children)
    text.heading(console, f"Resources ({made})")
    text.block(console, text.tree_of(preview.resources))
    text.heading(console, "Cost, USD an hour")
    text.block(console, text.cost_table(preview.costs))
    text.block(console, text.others_table(preview.costs))
    for line in text.cost_lines(preview.costs, plan.location):
        text.paragraph(console, line)
    text.listed(console, "Who may connect", preview.reach)
    text.heading(console, f"Quota to have in {plan.location}, all groups full")
    text.block(console, text.quota_table(preview.quotas))
    text.listed(console, "Good to know", preview.notes)
    text.listed(console, "Warnings", preview.warnings, style="yellow")


def next_steps(preview: AksPreview) -> Iterator[str]:
    """What to run next."""
    stack = preview.plan.stack
    yield "next (docs/aks.md):"
    yield "    az login"
    yield "    pulumi login --local"
    yield "    export PULUMI_CONFIG_PASSPHRASE=..."
    yield f"    pulumi stack init {stack}"
    yield f"    pulumi up -s {stack}"
    yield f"    $(pulumi stack output kubeconfig_command -s {stack})"


def to_json(preview: AksPreview) -> dict[str, Any]:
    """The preview as plain data; prices in USD an hour, None where one is unknown."""
    plan = preview.plan
    return {
        "stack": plan.stack,
        "target": "kubernetes",
        "location": plan.location,
        "resources": resource_as_dict(preview.resources),
        "cost": costs_as_dict(preview.costs),
        "pools": [
            {
                "name": pool.name,
                "node_type": pool.node_type,
                "size": pool.size.name,
                "market": pool.market,
                "minimum": pool.minimum,
                "maximum": pool.maximum,
            }
            for pool in plan.pools
        ],
        "reach": preview.reach,
        "private": plan.aks.private,
        "quota": [asdict(quota) for quota in preview.quotas],
        "notes": preview.notes,
        "warnings": preview.warnings,
    }
